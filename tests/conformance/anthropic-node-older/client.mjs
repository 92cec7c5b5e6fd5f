// The previous generation of the official Node SDK.

import { all } from './anthropic-client.mjs'
import { close } from './checks.mjs'

await all()
close()
