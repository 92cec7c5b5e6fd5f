// The newest official Node SDK.

import { close } from './checks.mjs'
import { all } from './openai-client.mjs'

await all()
close()
