// SPDX-License-Identifier: MIT
// A table of one page of a list. Rows keep their elements while their key stays, so an update moves neither the focus nor an
// open payload.

import { button, div, h, iso, plural, swap } from './dom.js';

// columns: {head, cell(row), kind}; key(row): string; label(row): text of the row for screen readers;
// bulk: [{label, kind, act(rows)}] for selected rows; empty: nodes if there are no rows.
export function table({ caption, columns, key, label = key, bulk = [], empty }) {
  const selectable = bulk.length > 0;
  const known = new Map(); // key -> {tr, row, box, cells}
  const chosen = new Set();
  const all = h('input', { type: 'checkbox', 'aria-label': 'Select all rows of this page', onchange: () => choose([...known.keys()], all.checked) });
  const body = h('tbody', {});
  const heads = columns.map(({ head, kind }) => h('th', { scope: 'col', class: kind ?? '' }, head));
  const grid = h('table', {}, h('caption', { class: 'sr' }, caption),
    h('thead', {}, h('tr', {}, selectable && h('th', { scope: 'col', class: 'check' }, all), heads)), body);
  const tally = h('span', { class: 'tally' });
  const bar = h('div', { class: 'bulk', role: 'group', 'aria-label': 'Selected rows', hidden: true }, tally,
    bulk.map((item) => button(item.label, () => item.act(selected()), item.kind ?? '')), button('Clear', () => clear(), 'quiet'));
  const none = h('div', { class: 'empty', hidden: true });
  const el = div('table', bar, grid, none);

  const selected = () => [...chosen].filter((id) => known.has(id)).map((id) => known.get(id).row);

  function showChosen() {
    const n = selected().length;
    bar.hidden = n === 0;
    tally.textContent = `${plural(n, 'row')} selected`;
    all.checked = n > 0 && n === known.size;
    all.indeterminate = n > 0 && n < known.size;
    for (const [id, { tr, box }] of known) {
      if (box) box.checked = chosen.has(id);
      tr.classList.toggle('chosen', chosen.has(id));
    }
  }

  function choose(ids, on) {
    for (const id of ids) {
      if (on) chosen.add(id);
      else chosen.delete(id);
    }
    showChosen();
  }

  const clear = () => {
    chosen.clear();
    showChosen();
  };

  function create(row) {
    const id = key(row);
    const box = selectable && h('input', { type: 'checkbox', 'aria-label': `Select ${iso(label(row))}`, onchange: () => choose([id], box.checked) });
    const cells = columns.map(({ head, kind }) => h('td', { class: kind ?? '', 'data-label': head }));
    const tr = h('tr', { 'data-row': id }, selectable && h('td', { class: 'check' }, box), cells);
    return { tr, row: null, print: '', box, cells };
  }

  // A row is drawn again only if its data changed.
  function draw(entry, row) {
    const print = JSON.stringify(row);
    entry.row = row;
    if (entry.print === print) return;
    entry.print = print;
    columns.forEach(({ cell }, i) => swap(entry.cells[i], cell(row, entry.tr)));
  }

  // note: what an empty table says instead of `empty`.
  function set(rows, note) {
    const keys = new Set(rows.map(key));
    for (const [id, { tr }] of known) {
      if (keys.has(id)) continue;
      closeRow(tr);
      tr.remove();
      known.delete(id);
      chosen.delete(id);
    }
    let place = body.firstElementChild;
    for (const row of rows) {
      const id = key(row);
      if (!known.has(id)) known.set(id, create(row));
      const entry = known.get(id);
      draw(entry, row);
      if (entry.tr === place) place = place.nextElementSibling;
      else body.insertBefore(entry.tr, place);
      while (place?.classList.contains('detail')) place = place.nextElementSibling;
    }
    grid.hidden = rows.length === 0;
    none.hidden = rows.length > 0;
    if (rows.length === 0) swap(none, note || (typeof empty === 'function' ? empty() : empty));
    showChosen();
  }

  const busy = () => chosen.size > 0 || body.querySelector('.detail') !== null || body.matches(':hover, :focus-within');

  return { el, set, clear, busy };
}

function closeRow(tr) {
  if (tr.nextElementSibling?.classList.contains('detail')) tr.nextElementSibling.remove();
}

// A button that opens a further row with `content(row)` below the row.
export function expander(label, tr, content) {
  const toggle = button(label, () => {
    const isOpen = tr.nextElementSibling?.classList.contains('detail');
    closeRow(tr);
    toggle.setAttribute('aria-expanded', String(!isOpen));
    if (!isOpen) tr.after(h('tr', { class: 'detail' }, h('td', { colspan: tr.children.length }, content())));
  }, 'link', { 'aria-expanded': 'false' });
  return toggle;
}
