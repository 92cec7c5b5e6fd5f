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
 * A run as lists show it: never its record.
 */
export type Summary = { id: string, agent: string, 
/**
 * The protocol of its client.
 */
protocol: string, 
/**
 * To whom it belongs, as the filter `owner` takes it.
 */
owner: string, session: string, 
/**
 * `queued`, `running`, `waiting`, `waiting_for_auth`, or how it ended.
 */
state: string, 
/**
 * The code of the error it ended with.
 */
code: string | null, created_at: number, changed_at: number, events: number, 
/**
 * The number of open items.
 */
pending: number, 
/**
 * The name of the first of them.
 */
asks: string | null, 
/**
 * The first text, at most 120 characters. `null`: the reader's role may not read texts.
 */
text: string | null, };

/**
 * A run with everything but its messages.
 */
export type Detail = { run: Summary, 
/**
 * Whether the reader's role may read texts. If not, texts are asterisks, one for each character.
 */
texts: boolean, 
/**
 * The protocols in which it can be shown: those of its agent's routes.
 */
protocols: Array<string>, 
/**
 * Its client's request as a shell command, by protocol. `null` without texts.
 */
curl: { [key in string]: string } | null, 
/**
 * The forms of its id: the gateway's own, and those of protocols that write it in another way.
 */
ids: { [key in string]: string }, session: SessionRuns, turns: Array<Turn>, 
/**
 * `null` without texts.
 */
request: Settings | null, 
/**
 * Advice about its error.
 */
advice: string | null, pending: Array<PendingItem>, 
/**
 * The answers to its questions.
 */
answers: Array<AnsweredItem>, 
/**
 * Receivers of its events by push, at this gateway, while it is sending to them.
 */
deliveries: Array<Delivery>, };

/**
 * A session, with the latest of its runs.
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
 * When the agent's first event came.
 */
first_event_at: number | null, ended_at: number | null, 
/**
 * The end of the turn. `null`: it has not ended.
 */
end: string | null, error: TurnError | null, usage: unknown, 
/**
 * The run that answered what this one asked.
 */
answered_by: string | null, 
/**
 * The client's messages, as the Agent API writes them.
 */
input: any[], };

/**
 * Why a turn failed.
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
 * The request to the agent and the beginning of its answer, or the error of the connection. `null`: unknown, or the
 * reader's role may not read texts.
 */
detail: string | null, 
/**
 * The error text that the agent reported, before it was filtered for clients. `null`: as for `detail`.
 */
agent_error: string | null, };

/**
 * The settings of a request beside its messages.
 */
export type Settings = { model: string | null, user_id: string | null, tools: unknown, extra: unknown, };

/**
 * The answer to something that a run asked.
 */
export type AnsweredItem = { 
/**
 * The item's id.
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
 * The run whose request had the answer.
 */
run: string, 
/**
 * The author of the decision, if it was made recently in the console of this gateway.
 */
by: string | null, };

/**
 * Sending a run's events to a receiver.
 */
export type Delivery = { 
/**
 * Events that the receiver has, or will not get.
 */
delivered: number, };

/**
 * Something that waits for a decision.
 */
export type PendingItem = { item: Item, 
/**
 * The allowed decisions.
 */
decisions: string[], 
/**
 * JSON Schema: of an approval's arguments, or of the answer to a question.
 */
schema: any, agent: string, session: string, 
/**
 * To whom it belongs, as in summaries.
 */
owner: string, run: string, 
/**
 * The protocol of the run's client.
 */
protocol: string, 
/**
 * The way in which that client learns of another one's decision. `null`: its agent no longer has a route of the
 * protocol.
 */
learns: string | null, asked_at: number, 
/**
 * `null`: not by itself.
 */
expires_at: number | null, };

/**
 * A question.
 */
export type Item = { id: string, kind: string, 
/**
 * The tool, or the reason.
 */
name: string, 
/**
 * `null` without texts.
 */
message: string | null, 
/**
 * JSON text; `null` without texts.
 */
arguments: string | null, arguments_bytes: number, reason: string | null, };

/**
 * The gateway at a glance.
 */
export type Gateway = { version: string, build: Build, started_at: number, 
/**
 * Whether it takes new runs.
 */
accepting: boolean, 
/**
 * Runs under way.
 */
active: number, 
/**
 * When the configuration was read last, and with which outcome.
 */
reload: unknown, store: StoreKind, listeners: Array<Listener>, public_url: string | null, ready: boolean, 
/**
 * Why it is not ready.
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
 * Without optimization.
 */
debug: boolean, };

/**
 * Where runs are kept.
 */
export type StoreKind = { 
/**
 * `memory`, `sqlite` or `postgres`.
 */
kind: string, };

/**
 * A socket.
 */
export type Listener = { 
/**
 * For whom: `clients` or `operators`.
 */
for: string, url: string, };

/**
 * Why the gateway is not ready.
 */
export type Reason = { 
/**
 * `draining`, `store` or `pool`.
 */
what: string, agent?: string, 
/**
 * For how many seconds.
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
 * An agent: as configured, with what is under way.
 */
export type Agent = { name: string, 
/**
 * The protocol it speaks.
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
 * The beginning of this state, as far as this gateway knows.
 */
since: number, 
/**
 * Why an endpoint is out.
 */
reason: string | null, 
/**
 * Runs under way.
 */
live: number, 
/**
 * Turns that wait for their session.
 */
queued: number, lately: RecentStats, last_fault: LastFault | null, endpoints?: Array<Endpoint>, };

/**
 * Why the latest failed run of an agent failed.
 */
export type LastFault = { at: number, code: string, 
/**
 * `null` without texts, and if the agent gave none.
 */
message: string | null, };

/**
 * A server of an agent.
 */
export type Endpoint = { key: string, url: string, 
/**
 * `up`, `trial` or `out`.
 */
state: string, reason: string | null, active: number, queued: number, 
/**
 * Runs it was chosen for since the gateway has started.
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
 * The other settings in force, and the protocol's own as `options`.
 */
settings: Record<string, unknown>, 
/**
 * Whether requests can be made for it: in the playground, and as snippets.
 */
sample: boolean, 
/**
 * A client's first request. `null`: the protocol has no sample.
 */
snippets: Snippets | null, };

/**
 * A request as text to be copied.
 */
export type Snippets = { curl: string, python: string, typescript: string, };

/**
 * A request to a route as its clients send it.
 */
export type Sample = { 
/**
 * Runs that begin later have greater ids.
 */
id: string, 
/**
 * To whom its run will belong.
 */
owner: string, 
/**
 * Whether it continues the conversation so far.
 */
goes_on: boolean, method: string, path: string, headers: { [key in string]: string }, body: unknown, snippets: Snippets, };

/**
 * The signed-in person.
 */
export type Session = { 
/**
 * Only when someone signs in.
 */
bearer?: string, name: string, role: "view" | "act", 
/**
 * When the bearer ends at the latest. `null`: the key itself was shown.
 */
until: number | null, };

/**
 * An agent that takes no new runs, or takes them again.
 */
export type DrainState = { agent: string, state: string, 
/**
 * Always `gateway`: others that share the store are not concerned, and it is forgotten by a restart.
 */
scope: string, };

/**
 * A window of the history, with what is under way now.
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
 * When each step began, in milliseconds since 1970.
 */
times: Array<number>, series: Series, by_agent: Array<Row>, by_protocol: Array<Row>, };

/**
 * Runs of an agent, or over a protocol.
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
