// SPDX-License-Identifier: MIT
// Cluster: the servers of the store, and which server owns which shard.

import { get, path } from './api.js';
import { count, div, h, h1, h2, muted, name, pill, plural, s, swap } from './dom.js';
import { table } from './table.js';

const COLUMNS = 32;
const DRAWN = 4096; // shards that are drawn as squares

// 0–3, 7, 9–12
function ranges(numbers) {
  const out = [];
  for (const n of numbers) {
    const last = out.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else out.push([n, n]);
  }
  return out.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(', ');
}

// One square per shard. The shards of the chosen server are filled; those in `away` have no server that responds.
function map(shards, chosen, away) {
  const rows = Math.ceil(Math.min(shards.length, DRAWN) / Math.min(shards.length, COLUMNS));
  const columns = Math.min(shards.length, COLUMNS);
  const svg = s('svg', {
    viewBox: `0 0 ${columns * 12} ${rows * 12}`, class: 'shards', role: 'img',
    'aria-label': `${plural(shards.length, 'shard')}; ${shards.filter((one) => one.owner === chosen).length} belong to ${chosen ?? 'nobody'}`,
  });
  svg.style.maxWidth = `${columns * 1.375}rem`;
  for (const { shard, owner } of shards.slice(0, DRAWN)) {
    const kind = away.includes(shard) ? 'nobody' : owner === chosen ? 'mine' : 'other';
    svg.append(s('rect', { x: (shard % columns) * 12 + 1, y: Math.floor(shard / columns) * 12 + 1, width: 10, height: 10, rx: 2, class: kind },
      s('title', {}, `Shard ${shard}: ${owner ?? 'no owner'}`)));
  }
  return svg;
}

function serverStatus(server) {
  if (server.waits) return pill('waits', 'warn');
  return server.linked ? pill('linked', 'good') : [pill('not linked', 'bad'), ' ', name(server.trouble ?? '')];
}

export async function show(view, route, page) {
  const place = div();
  const note = h('p', { class: 'muted' });
  let data = null;
  let chosen = null;
  const draw = () => {
    const owner = chosen ?? data.servers.find((one) => one.self)?.address;
    const linked = data.servers.filter((one) => one.linked).map((one) => one.address);
    const away = data.shards.filter((one) => !linked.includes(one.owner)).map((one) => one.shard);
    swap(place, map(data.shards, owner, away));
    note.textContent = `${plural(data.shards.length, 'shard')}. Filled: shards of ${owner}.${away.length ? ` Without a server that responds: ${ranges(away)}.` : ''}`;
  };
  const list = table({
    caption: 'Servers', key: (server) => server.address,
    columns: [
      { head: 'Server', kind: 'main', cell: (server) => [h('button', { type: 'button', class: 'link', onclick: () => {
        chosen = server.address;
        draw();
      } }, name(server.address)), server.self && muted(' this server')] },
      { head: 'Version', cell: (server) => server.version }, { head: 'Status', cell: serverStatus },
      { head: 'Shards', kind: 'num', cell: (server) => count(server.shards) },
      { head: 'Which', kind: 'wide', cell: (server) => ranges(data.shards.filter((one) => one.owner === server.address).map((one) => one.shard)) },
    ],
  });
  async function load() {
    const next = await get(path('cluster'));
    if (JSON.stringify(next) === JSON.stringify(data)) return; // what the viewer points at stays
    data = next;
    list.set(data.servers.map((server) => ({ ...server, owned: data.shards.filter((one) => one.owner === server.address).length })));
    draw();
  }
  view.append(h1('Cluster'), list.el, h2('Shards'), place, note);
  const beat = setInterval(() => document.hidden || load().catch(() => {}), 2000);
  page.follow('', () => {}, load);
  await load();
  return { stop: () => clearInterval(beat) };
}
