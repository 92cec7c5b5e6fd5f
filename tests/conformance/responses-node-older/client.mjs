// The official Node SDK, previous major version.

import { close } from './checks.mjs'
import { all } from './openai-client.mjs'

await all()
close()
