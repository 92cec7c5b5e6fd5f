// The newest official Node SDK.

import { all } from './anthropic-client.mjs'
import { close } from './checks.mjs'

await all()
close()
