// SPDX-License-Identifier: MIT
// Commands to copy. They name the variable that holds the token, never the token.

import { path, url } from './api.js';
import { state } from './state.js';

const plain = /^[A-Za-z0-9_./:@%+=,-]+$/;

const quote = (value) => (plain.test(value) ? value : `'${String(value).replaceAll("'", "'\\''")}'`);

const FIELDS = ['due', 'target', 'headers', 'timeout', 'retry', 'max_wait', 'merge'];

// The timer as JSON. `content` is the payload as text, which stays as it is. A civil time stays one.
function body({ local, zone, ...timer }, content) {
  if (local !== undefined) timer.due = { local, zone };
  const fields = FIELDS.filter((key) => timer[key] !== undefined).map((key) => `${JSON.stringify(key)}:${JSON.stringify(timer[key])}`);
  if (content) fields.push(`${content.binary ? '"payload_base64":' : '"payload":'}${content.text}`);
  return `{${fields.join(',')}}`;
}

// A server with tokens wants one.
export const authorization = () => (state.who.token === null ? '' : ' -H "Authorization: Bearer $FOLIOT_TOKEN"');

export function curlCommand(timer, content) {
  const named = timer.name !== undefined;
  const target = url(named ? path('timers', timer.namespace, timer.name) : path('timers', timer.namespace));
  return `curl${named ? ' -X PUT' : ''} ${quote(target.href)}${authorization()} -H 'Content-Type: application/json' -d ${quote(body(timer, content))}`;
}

export function foliotCommand(timer, content) {
  const words = ['foliot', '--server', url('').href.replace(/\/$/, ''), 'add', '--at', timer.due];
  const option = (key, value) => value !== undefined && words.push(key, value);
  option('--to', timer.target);
  if (content && !content.binary) words.push('--payload', content.text);
  for (const [key, value] of Object.entries(timer.headers ?? {})) words.push('--header', `${key}: ${value}`);
  option('--timeout', timer.timeout);
  option('--retry', timer.retry && Object.entries(timer.retry).map(([key, value]) => `${key}=${value}`).join(','));
  words.push('--', timer.namespace);
  if (timer.name !== undefined) words.push(timer.name);
  const lost = [content?.binary && 'the binary payload', timer.local && 'the time zone', timer.max_wait && 'max_wait', timer.merge && 'merge'].filter(Boolean);
  return words.map(quote).join(' ') + (lost.length ? ` # without ${lost.join(', ')}` : '');
}
