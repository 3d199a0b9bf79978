// SPDX-License-Identifier: MIT
// A form made from a table of fields: {key, label, hint, example, number, time, options, lines, json, area, wide, list, search},
// and {group} for a heading.

import { exact } from './api.js';
import { field, h, select } from './dom.js';
import { fromInput, toInput } from './time.js';

export function control(item, value) {
  const common = { name: item.key, autocomplete: 'off', placeholder: item.example ?? '', 'data-search': item.search };
  if (item.options) return select(item.options, value ?? '', common);
  if (item.time) return h('input', { ...common, type: 'datetime-local', step: 1, value: toInput(value) });
  const shown = value === undefined || value === null ? '' : item.json ? JSON.stringify(value, null, 1) : item.lines ? value.join(' ') : String(value);
  if (item.area) return h('textarea', { ...common, rows: 3, value: shown, class: 'mono' });
  return h('input', { ...common, type: item.search ? 'search' : item.number ? 'number' : 'text', min: item.number && 0, step: item.number && 'any', list: item.list, value: shown });
}

// The value of a control as the API wants it; undefined if it is empty.
function read(item, value) {
  if (value.trim() === '') return undefined;
  if (item.time) return fromInput(value);
  if (item.number) return Number(value);
  if (item.lines) return value.trim().split(/[\s,]+/);
  if (!item.json) return value.trim();
  try {
    return JSON.parse(value, exact);
  } catch {
    throw Object.assign(new Error(`${item.label} is not valid JSON.`), { field: item.key });
  }
}

// sheet(items, value(key)) -> {el, controls, values(), mark(problem)}
export function sheet(items, value, props = {}) {
  const controls = new Map();
  const el = h('form', { class: 'sheet', ...props });
  for (const item of items) {
    if (item.group) {
      el.append(h('fieldset', {}, h('legend', {}, item.group)));
      continue;
    }
    const input = control(item, value(item.key));
    const place = field(item.label, input, item.hint);
    if (item.area || item.wide) place.classList.add('wide');
    controls.set(item.key, input);
    el.lastChild.append(place);
  }
  return {
    el, controls,
    values() {
      const out = {};
      for (const item of items.filter((one) => one.key && !controls.get(one.key).disabled)) {
        const { value: typed, validity } = controls.get(item.key);
        if (validity.badInput) throw Object.assign(new Error(`${item.label} is incomplete.`), { field: item.key });
        const given = read(item, typed);
        if (given !== undefined) out[item.key] = given;
      }
      return out;
    },
    mark(problem) {
      for (const [key, input] of controls) {
        if (problem?.field === key) input.setAttribute('aria-invalid', 'true');
        else input.removeAttribute('aria-invalid');
      }
    },
  };
}
