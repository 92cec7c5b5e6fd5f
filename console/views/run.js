// One run: the heading, and the tabs Timeline, Prism and Details.

import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { effect, signal } from '../vendor/signals-core/signals-core.mjs';
import { mayAct, post, call, file, session } from '../api.js';
import { ago, counted, duration, ownerName } from '../format.js';
import { go, lastList, link, place, refine } from '../router.js';
import { FILE, closeRun, fail, grown, loadDetail, now, openFile, openRun, run } from '../state.js';
import { ask, empty, failed, loading, stateBadge } from '../ui.js';
import { detailsTab } from './details.js';
import { prismTab } from './prism.js';
import { timelineTab } from './timeline.js';

const TABS = { timeline: ['Timeline', timelineTab], prism: ['Prism', prismTab], details: ['Details', detailsTab] };
const tabOf = () => (Object.hasOwn(TABS, place.value.query.get('tab') ?? '') ? place.value.query.get('tab') : 'timeline');

// The address determines the open run and the protocols of its frames.
effect(() => {
  const { screen, id } = place.value;
  if (!session.value) return;
  // The playground follows the runs of its own conversation.
  if (screen === 'playground') return;
  if (screen !== 'runs' || !id) return closeRun();
  if (id === FILE) return run.value?.isFile ? undefined : closeRun();
  const all = run.value?.id === id ? run.value.detail?.protocols : null;
  openRun(id, tabOf() === 'prism' && all ? all : ['agent-api']);
});

export function runView() {
  const open = run.value;
  if (!open && place.value.id === FILE) return empty('No file is open.', html`Drop an exported run on this page. <a href="#/runs">All runs</a>`);
  if (!open) return loading('the run');
  if (open.removed && !open.detail) return gone();
  if (open.error && !open.detail) return failed(open.error, () => loadDetail(open.id));
  const { summary, detail } = open;
  if (!summary) return loading('the run');
  grown.value;
  const tab = tabOf();
  return html`
    <div class="head">
      <a class="back" href=${lastList()} aria-label="All runs">←</a>
      <h1>Run</h1>
      <span role="status" aria-label="State">${stateBadge(summary)}</span>
      <span class="space"></span>
      ${open.isFile ? html`<span class="dim">from a file</span>` : actions(summary)}
    </div>
    ${open.removed ? html`<p class="problem" role="status">This run was deleted. The page shows the events that were received before.</p>` : nothing}
    <p class="facts">${summary.agent} · ${summary.protocol} · ${ownerName(summary.owner)} · ${counted(open.frames.length || summary.events, 'event')}
      · ${duration((open.folded.last || summary.changed_at) - summary.created_at)} · began ${ago(summary.created_at, now.value)}</p>
    <div role="tablist" aria-label="Views of the run" @keydown=${onTabKey}>
      ${Object.entries(TABS).map(([name, [title]]) => html`
        <button role="tab" id=${`tab-${name}`} aria-selected=${tab === name ? 'true' : 'false'} aria-controls="panel"
          tabindex=${tab === name ? 0 : -1} @click=${() => refine({ tab: name === 'timeline' ? '' : name })}>${title}</button>`)}
    </div>
    <div role="tabpanel" id="panel" aria-labelledby=${`tab-${tab}`}>${TABS[tab][1](open, detail)}</div>`;
}

function onTabKey(event) {
  const names = Object.keys(TABS);
  const index = names.indexOf(tabOf());
  const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: -1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const next = names[(to + names.length) % names.length];
  refine({ tab: next === 'timeline' ? '' : next });
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById(`tab-${next}`)?.focus()));
}

const gone = () => empty('There is no such run.', html`It may have been deleted, or its retention ended. <a href="#/runs">All runs</a>`);

/** Whether an exported file omits texts. */
const masked = signal(false);

const isLive = (summary) => ['queued', 'running', 'waiting', 'waiting_for_auth'].includes(summary.state);

function actions(summary) {
  const { id } = summary;
  const cancel = () => ask('Cancel run', 'The gateway asks the agent to stop, and the client receives the status canceled.',
    () => post(`/runs/${id}/cancel`));
  const remove = () => ask('Delete run', 'The run and its messages are deleted for its owner too. This cannot be undone.',
    async () => {
      await call('DELETE', `/runs/${id}`);
      go(lastList());
    });
  return html`
    <label class="inline"><input type="checkbox" .checked=${masked.value} @change=${(event) => { masked.value = event.target.checked; }}>without texts</label>
    <button @click=${() => save(id).catch(fail)}>Export</button>
    ${mayAct() && isLive(summary) ? html`<button @click=${cancel}>Cancel run</button>` : nothing}
    ${mayAct() && !isLive(summary) ? html`<button class="danger" @click=${remove}>Delete run</button>` : nothing}`;
}

async function save(id) {
  const url = URL.createObjectURL(await file(`/runs/${id}/export${masked.value ? '?mask=1' : ''}`));
  const anchor = document.createElement('a');
  anchor.href = url;
  anchor.download = `run-${id}.json`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Opens an exported file and navigates to it. */
export async function openDropped(file) {
  try {
    openFile(await file.text());
    if (place.peek().id === FILE) refine({ tab: '' });
    else go(link('runs', FILE));
  } catch (error) {
    fail(error);
  }
}
