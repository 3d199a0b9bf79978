// SPDX-License-Identifier: MIT
// Live: the event stream with filters.

import { div, h, swap } from './dom.js';
import { feed, TYPES } from './feed.js';
import { filterBar } from './list.js';
import { pick } from './router.js';

export function show(view, route) {
  let current = null;
  const place = div();
  const open = () => {
    current?.close();
    current = feed(pick(route.query, ['namespace', 'type']));
    swap(place, current.el);
  };
  const bar = filterBar(route, [
    { param: 'type', label: 'Event', search: true, options: [['', 'all'], ...TYPES, ['failed,dead', 'failed and dead']] },
  ], open);
  view.append(h('h1', {}, 'Live'), bar, place);
  open();
  return { stop: () => current?.close() };
}
