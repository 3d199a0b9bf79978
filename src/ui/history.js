// SPDX-License-Identifier: MIT
// Attempts and responses of a timer or a schedule, newest first.

import { get, path } from './api.js';
import { h, h2, mono, muted, name, p, pill, swap } from './dom.js';
import { pretty, viewer } from './payload.js';
import { expander, table } from './table.js';
import { span, time } from './time.js';

const ROWS = 20;
const KIND = { done: 'good', again: 'good', failed: 'warn', expired: 'warn', skipped: 'warn', dead: 'bad' };

function response(row) {
  if (row.response_base64 !== undefined) return viewer({ Base64: () => row.response_base64 }, null);
  const forms = /^\s*[{["]/.test(row.response) ? { Pretty: () => pretty(row.response), Raw: () => row.response } : { Raw: () => row.response };
  return viewer(forms, muted('The beginning of the response.'));
}

const columns = [
  { head: 'Began', kind: 'due', cell: (row) => time(row.began, 'both', { millis: true }) },
  { head: 'Result', cell: (row) => [pill(row.result, KIND[row.result] ?? ''), row.status ? muted(` ${row.status}`) : ''] },
  { head: 'Attempt', kind: 'num', cell: (row) => row.attempt ?? '' },
  { head: 'Late', kind: 'num', cell: (row) => (row.late_ms === undefined ? '' : span(row.late_ms)) },
  { head: 'Took', kind: 'num', cell: (row) => (row.took_ms === undefined ? '' : span(row.took_ms)) },
  { head: 'Reason', kind: 'wide', cell: (row) => (row.reason ? name(row.reason) : row.count > 1 ? `${row.count} occurrences` : '') },
  { head: 'Response', cell: (row, tr) => (row.response || row.response_base64 ? expander('Show', tr, () => response(row)) : '') },
];

// filter: {id}, {name} or {schedule}
export function history(namespace, filter) {
  const list = table({
    caption: 'Attempts', columns: filter.schedule ? [columns[0], { head: 'Occurrence', cell: (row) => (row.occurrence ? time(row.occurrence) : mono(row.id ?? '')) }, ...columns.slice(1)] : columns,
    key: (row) => `${row.id} ${row.attempt} ${row.began}`,
    empty: [p('No attempts are recorded. The namespace keeps failures for three days unless its history setting says otherwise.')],
  });
  const note = h('p', { class: 'muted' });
  const el = h('section', {}, h2('Attempts'), list.el, note);
  return {
    el,
    async load() {
      try {
        const { history: rows, cursor } = await get(path('history', namespace), { ...filter, limit: ROWS });
        list.set(rows);
        note.textContent = cursor ? `The latest ${rows.length}. The rest: foliot history.` : '';
      } catch (problem) {
        swap(note, problem.message);
      }
    },
  };
}
