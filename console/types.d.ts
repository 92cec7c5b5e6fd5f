// What the admin listener answers. Written from the types of the gateway by
// `INSTA_UPDATE=always cargo test --lib the_types_of_the_page`: do not edit.

/**
 * A page of a list.
 */
export type Page<T> = { data: Array<T>, 
/**
 * The number of entries on all pages. `null`: not counted.
 */
total: number | null, 
/**
 * The `cursor` of the next page. `null`: this is the last one.
 */
next: string | null, };

/**
 * A run in a list, without its record.
 */
export type Summary = { id: string, agent: string, 
/**
 * The protocol of the run's client.
 */
protocol: string, 
/**
 * The key of the owner, as in the filter `owner`.
 */
owner: string, session: string, 
/**
 * `queued`, `running`, `waiting`, `waiting_for_auth`, or the end: `completed`, `incomplete`, `failed`, `rejected`,
 * `canceled`.
 */
state: string, 
/**
 * The code of the run's error. `null`: the run has none.
 */
code: string | null, created_at: number, changed_at: number, events: number, 
/**
 * The number of open items.
 */
pending: number, 
/**
 * The name of the first open item. `null`: no item is open.
 */
asks: string | null, 
/**
 * The first text, at most 120 characters. `null`: the reader's role may not read texts.
 */
text: string | null, };

/**
 * The detail of a run, without its messages.
 */
export type Detail = { run: Summary, 
/**
 * Whether the reader's role may read texts. If not, texts are asterisks, one for each character.
 */
texts: boolean, 
/**
 * The protocols of the agent's routes that can show the run.
 */
protocols: Array<string>, 
/**
 * Shell commands that send the first input of the run to its agent, by protocol. Empty if the input is longer than
 * 64 KiB. `null`: the reader's role may not read texts.
 */
curl: { [key in string]: string } | null, 
/**
 * The run's id as `id`, and its form in each protocol that has a form of its own.
 */
ids: { [key in string]: string }, session: SessionRuns, turns: Array<Turn>, 
/**
 * `null`: the reader's role may not read texts.
 */
request: Settings | null, 
/**
 * Advice for the operator about the error. `null`: no advice applies.
 */
advice: string | null, pending: Array<PendingItem>, 
/**
 * The answers to the run's questions.
 */
answers: Array<AnsweredItem>, 
/**
 * Push receivers of the run's events, while this gateway is sending to them.
 */
deliveries: Array<Delivery>, };

/**
 * A session with its latest runs.
 */
export type SessionRuns = { id: string, runs: Array<Summary>, };

/**
 * A turn of a run.
 */
export type Turn = { 
/**
 * From 0.
 */
number: number, started_at: number, 
/**
 * The time of the agent's first event. `null`: none so far.
 */
first_event_at: number | null, ended_at: number | null, 
/**
 * The end of the turn. `null`: it has not ended.
 */
end: string | null, error: TurnError | null, usage: unknown, 
/**
 * The run that answered the question of this turn.
 */
answered_by: string | null, 
/**
 * The client's messages, in the format of the Agent API.
 */
input: any[], };

/**
 * The error of a failed turn.
 */
export type TurnError = { code: string, message: string, 
/**
 * The party that must act: `client`, `upstream` or `gateway`.
 */
blame: string, 
/**
 * The HTTP status of the agent's answer. `null`: the agent sent no answer, or its status was no error.
 */
status: number | null, 
/**
 * The request to the agent and the start of its answer, or the error of the connection. `null`: unknown, or the
 * reader's role may not read texts.
 */
detail: string | null, 
/**
 * The agent's own error text, before it was filtered for clients. `null`: as for `detail`.
 */
agent_error: string | null, };

/**
 * The settings of a request, without its messages.
 */
export type Settings = { model: string | null, user_id: string | null, tools: unknown, extra: unknown, };

/**
 * The answer to a question of a run.
 */
export type AnsweredItem = { 
/**
 * The id of the answered item.
 */
id: string, 
/**
 * `accept`, `edit`, `respond`, `reject` or `cancel`. `null`: the agent decides what the answer means.
 */
decision: string | null, 
/**
 * The new arguments of an edit, as JSON text.
 */
arguments: string | null, text: string | null, 
/**
 * The run that received the answer.
 */
run: string, 
/**
 * The author of a recent decision in the console of this gateway. `null`: another decision.
 */
by: string | null, };

/**
 * The progress of sending a run's events to a receiver.
 */
export type Delivery = { 
/**
 * The number of events that were delivered or skipped.
 */
delivered: number, };

/**
 * An open item with its run.
 */
export type PendingItem = { item: Item, 
/**
 * The allowed decisions.
 */
decisions: string[], 
/**
 * JSON Schema of an approval's arguments, or of the answer to a question. `null`: the item has no schema, or the
 * reader's role may not read texts.
 */
schema: any, agent: string, session: string, 
/**
 * The key of the owner, as in summaries.
 */
owner: string, run: string, 
/**
 * The protocol of the run's client.
 */
protocol: string, 
/**
 * A sentence about how that client learns of a decision by someone else. `null`: the agent no longer has a route
 * of the protocol.
 */
learns: string | null, asked_at: number, 
/**
 * `null`: the item does not expire.
 */
expires_at: number | null, };

/**
 * A question or an approval.
 */
export type Item = { id: string, kind: string, 
/**
 * The name of the tool; for `input` and `auth` the reason.
 */
name: string, 
/**
 * `null`: the item has no message, or the reader's role may not read texts.
 */
message: string | null, 
/**
 * JSON text. `null`: the reader's role may not read texts.
 */
arguments: string | null, arguments_bytes: number, reason: string | null, };

/**
 * The state of the gateway.
 */
export type Gateway = { version: string, build: Build, started_at: number, 
/**
 * Whether the gateway accepts new runs.
 */
accepting: boolean, 
/**
 * Runs under way.
 */
active: number, 
/**
 * The time and the outcome of the latest reload.
 */
reload: unknown, store: StoreKind, listeners: Array<Listener>, public_url: string | null, ready: boolean, 
/**
 * The reasons for not being ready.
 */
reasons: Array<Reason>, 
/**
 * The protocols of all routes.
 */
protocols: Array<string>, traffic: Array<Traffic>, warnings: Array<string>, };

/**
 * The build of the program.
 */
export type Build = { os: string, arch: string, 
/**
 * True for a build without optimization.
 */
debug: boolean, };

/**
 * The store of runs.
 */
export type StoreKind = { 
/**
 * `memory`, `sqlite` or `postgres`.
 */
kind: string, };

/**
 * A listening socket.
 */
export type Listener = { 
/**
 * The users of the listener: `clients` or `operators`.
 */
for: string, url: string, };

/**
 * A reason for not being ready.
 */
export type Reason = { 
/**
 * `draining`, `store` or `pool`.
 */
what: string, agent?: string, 
/**
 * The duration in seconds.
 */
since_s?: number, detail?: string, };

/**
 * The traffic of a protocol.
 */
export type Traffic = { protocol: string, 
/**
 * Runs under way.
 */
live: number, lately: RecentStats, };

/**
 * Some runs in the last 15 minutes.
 */
export type RecentStats = { 
/**
 * Runs that ended.
 */
ended: number, 
/**
 * The number of failed ones.
 */
failed: number, 
/**
 * From the beginning of a turn to its first event in milliseconds: half of the turns were as fast.
 */
first_event_p50: number | null, 
/**
 * Runs that ended in each of the last 15 minutes, the oldest first.
 */
per_minute: Array<number>, };

/**
 * A configured agent with its current load.
 */
export type Agent = { name: string, 
/**
 * The protocol of the agent.
 */
protocol: string, 
/**
 * Hosts of its endpoints, or `built in`.
 */
host: string, 
/**
 * `ready`, `failing` (every endpoint is out) or `draining`.
 */
state: string, 
/**
 * The beginning of this state, as observed by this gateway.
 */
since: number, 
/**
 * The reason why an endpoint is out. `null`: no endpoint is out.
 */
reason: string | null, 
/**
 * Runs under way.
 */
live: number, 
/**
 * Turns that wait for an earlier turn of their session.
 */
queued: number, lately: RecentStats, last_fault: LastFault | null, endpoints?: Array<Endpoint>, };

/**
 * The failure of the agent's latest failed run.
 */
export type LastFault = { at: number, code: string, 
/**
 * `null`: the agent sent none, or the reader's role may not read texts.
 */
message: string | null, };

/**
 * An endpoint of an agent.
 */
export type Endpoint = { key: string, url: string, 
/**
 * `up`, `trial` or `out`.
 */
state: string, reason: string | null, active: number, queued: number, 
/**
 * Runs for which the endpoint was chosen since the start of the gateway.
 */
requests: number, retries: number, ejections: number, };

/**
 * A route.
 */
export type Route = { protocol: string, path: string, 
/**
 * The URL for clients.
 */
url: string, 
/**
 * The accepted credentials, or `none`.
 */
auth: string, agents: Array<string>, 
/**
 * The other active settings. `options`: the settings of the protocol.
 */
settings: Record<string, unknown>, 
/**
 * Whether the protocol has sample requests, for the playground and for snippets.
 */
sample: boolean, 
/**
 * Snippets of a client's first request. `null`: the protocol has no sample request.
 */
snippets: Snippets | null, };

/**
 * A request as snippets.
 */
export type Snippets = { curl: string, python: string, typescript: string, };

/**
 * A sample request to a route.
 */
export type Sample = { 
/**
 * The id of the sample. Runs that start later have greater ids.
 */
id: string, 
/**
 * The base key of the owner of the request's run.
 */
owner: string, 
/**
 * Whether the request continues the conversation so far.
 */
goes_on: boolean, method: string, path: string, headers: { [key in string]: string }, body: unknown, snippets: Snippets, };

/**
 * The signed-in person.
 */
export type Session = { 
/**
 * Only in the response to a sign-in.
 */
bearer?: string, name: string, role: "view" | "act", 
/**
 * The latest end of the bearer. `null`: the request authenticated with a key or a certificate.
 */
until: number | null, };

/**
 * The result of draining or resuming an agent.
 */
export type DrainState = { agent: string, state: string, 
/**
 * Always `gateway`: other gateways that share the store are not affected, and a restart ends the drain.
 */
scope: string, };

/**
 * The series of a window, and the current and ended runs by agent and protocol.
 */
export type Metrics = { 
/**
 * `15m` or `24h`.
 */
window: string, 
/**
 * The length of a step, in milliseconds.
 */
step_ms: number, 
/**
 * The start of each step, in milliseconds since 1970.
 */
times: Array<number>, series: Series, by_agent: Array<Row>, by_protocol: Array<Row>, };

/**
 * The runs of an agent or of a protocol.
 */
export type Row = { name: string, 
/**
 * Runs under way now.
 */
live: number, 
/**
 * Runs that ended in the window.
 */
ended: number, 
/**
 * The number of failed ones.
 */
failed: number, };

/**
 * Numbers by step, the oldest first. Times are in milliseconds; `None`: nothing was measured in the step.
 */
export type Series = { 
/**
 * The most runs at once.
 */
live: Array<number>, 
/**
 * Runs that ended well.
 */
completed: Array<number>, 
/**
 * Runs that ended before the agent was done.
 */
incomplete: Array<number>, 
/**
 * Runs that failed.
 */
failed: Array<number>, 
/**
 * Runs that were canceled.
 */
canceled: Array<number>, 
/**
 * Runs that were rejected.
 */
rejected: Array<number>, 
/**
 * Failed runs whose client was to blame.
 */
failed_client: Array<number>, 
/**
 * Failed runs whose agent, or the way to it, was to blame.
 */
failed_upstream: Array<number>, 
/**
 * Failed runs of which this gateway was to blame.
 */
failed_gateway: Array<number>, 
/**
 * From the beginning of a turn to its first event: half of the turns were as fast.
 */
first_p50: Array<number | null>, 
/**
 * The same for 95 % of the turns.
 */
first_p95: Array<number | null>, 
/**
 * The same for 99 % of the turns.
 */
first_p99: Array<number | null>, 
/**
 * From the first input of a run to its end: half of the runs were as fast.
 */
total_p50: Array<number | null>, 
/**
 * The same for 95 % of the runs.
 */
total_p95: Array<number | null>, 
/**
 * The same for 99 % of the runs.
 */
total_p99: Array<number | null>, 
/**
 * The most memory of the process in bytes.
 */
memory: Array<number | null>, 
/**
 * The most runs that the store still had to write.
 */
store_owed: Array<number>, 
/**
 * The size of the store in bytes; 0 for one in memory.
 */
store_bytes: Array<number>, };

/**
 * A line of the audit log. Empty fields are left out.
 */
export type AuditEntry = { time: string, what: Action, who?: string, from?: string, target?: string, detail?: string, request?: string, 
/**
 * The number of entries of this kind that the line stands for, if more than one.
 */
count?: number, };

/**
 * The audited action.
 */
export type Action = "key_created" | "key_revoked" | "credential_refused" | "decision" | "run_canceled" | "run_deleted" | "sign_in" | "sign_out" | "run_opened" | "drain" | "reload" | "admin_call" | "log_level" | "started" | "stopped";
