// The official Node SDK, one major version back.

import { close } from './checks.mjs'
import { all } from './openai-client.mjs'

await all()
close()
