// The previous major version of the official Node SDK.

import { close } from './checks.mjs'
import { all } from './chat-client.mjs'

await all()
close()
