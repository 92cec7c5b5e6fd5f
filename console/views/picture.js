// The picture of the overview: lines from client protocols to the Agent API and from there to agents, and bars of the last
// 15 minutes. The width of a line shows the traffic. The picture is decorative: the page shows the same numbers as text.

import { Directive, directive } from '../vendor/lit-html/directive.js';
import { html, noChange, svg } from '../vendor/lit-html/lit-html.js';

const SVG = 'http://www.w3.org/2000/svg';

/** The width of a line, relative to the largest traffic. */
const widthOf = (count, most) => (count === 0 ? 1 : 1.5 + (6 * count) / Math.max(1, most));

/** A curve between two points with horizontal ends. */
const curve = (x1, y1, x2, y2) => `M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;

/** Draws lines to the positions of the rows, again after each resize. */
class Wires extends Directive {
  observer = /** @type {ResizeObserver | null} */ (null);
  draw = () => {};

  render(_left, _right) { return noChange; }

  /** @param {any} part */
  update({ element }, [left, right]) {
    this.draw = () => {
      if (!element.isConnected) return this.observer?.disconnect();
      const frame = element.getBoundingClientRect();
      if (frame.width === 0) return undefined;
      const picture = element.closest('.picture');
      const middle = (row) => { const box = row.getBoundingClientRect(); return box.top + box.height / 2 - frame.top; };
      const [x, y] = [frame.width / 2, frame.height / 2];
      const lines = (rows, counts, from, to) => [...rows].map((row, index) => {
        const line = document.createElementNS(SVG, 'path');
        const most = Math.max(...counts);
        line.setAttribute('d', from < to ? curve(from, middle(row), to, y) : curve(to, y, from, middle(row)));
        line.setAttribute('stroke-width', String(widthOf(counts[index] ?? 0, most)));
        line.setAttribute('class', counts[index] > 0 ? 'busy' : '');
        return line;
      });
      element.replaceChildren(
        ...lines(picture.querySelectorAll('.clients li'), left, 0, x),
        ...lines(picture.querySelectorAll('.agents tbody tr'), right, frame.width, x),
      );
      return undefined;
    };
    requestAnimationFrame(this.draw);
    if (!this.observer) {
      this.observer = new ResizeObserver(() => this.draw());
      this.observer.observe(element);
    }
    return noChange;
  }
}
const wires = directive(Wires);

/** @param {number[]} left  traffic of each protocol  @param {number[]} right  traffic of each agent */
export const hub = (left, right) => html`
  <div class="hub" aria-hidden="true"><svg class="wires" ${wires(left, right)}></svg><span>Agent API</span></div>`;

/** Bars of the runs that ended in each of the last minutes. */
export function bars(counts) {
  const most = Math.max(1, ...counts);
  return html`<svg class="bars" viewBox="0 0 ${counts.length * 4} 16" aria-hidden="true" preserveAspectRatio="none">
    ${counts.map((count, index) => {
      const height = count === 0 ? 1 : 2 + (14 * count) / most;
      return svg`<rect x=${index * 4} y=${16 - height} width="3" height=${height} class=${count === 0 ? 'none' : ''}></rect>`;
    })}</svg>`;
}
