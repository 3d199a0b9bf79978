// SPDX-License-Identifier: MIT
// Requests to the public HTTP interface. Addresses are relative to the page, so a proxy may serve it under a base path.

const base = new URL('../', document.baseURI);

export const PAGE = 50; // rows of a list that the browser holds

export class Problem extends Error {
  constructor(status, data) {
    super(data.detail || data.title || `The server responded with status ${status}.`);
    this.status = status;
    this.kind = String(data.type ?? '').replace('urn:foliot:problem:', '');
    this.field = data.field;
    this.position = data.position;
  }
}

export function path(...parts) {
  // A browser resolves these two, even when they are percent-encoded.
  const dots = parts.find((part) => part === '.' || part === '..');
  if (dots) throw new Problem(400, { detail: `A browser cannot request a path with the name "${dots}". Use the timer's ID or the command line.` });
  return `v1/${parts.map(encodeURIComponent).join('/')}`;
}

export function url(where, query) {
  const target = new URL(where, base);
  target.search = String(new URLSearchParams(query));
  return target;
}

let onUnauthorized = () => {};
export const whenUnauthorized = (callback) => {
  onUnauthorized = callback;
};

async function problemOf(response) {
  let data = {};
  try {
    data = await response.json();
  } catch {
    // A proxy between us and the server responds in its own format.
  }
  const problem = new Problem(response.status, data);
  if (response.status === 401) onUnauthorized();
  return problem;
}

export async function open(method, where, { query, body, signal, headers } = {}) {
  const init = { method, signal, headers: { 'Foliot-UI': '1', ...headers }, cache: 'no-store', credentials: 'same-origin' };
  if (method !== 'GET' && method !== 'DELETE') init.headers['Content-Type'] = 'application/json';
  if (body !== undefined) init.body = JSON.stringify(body);
  let response;
  try {
    response = await fetch(url(where, query), init);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, { detail: 'The server does not respond.' });
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

// Numbers that JavaScript cannot hold keep their digits, where the browser can tell them.
export const exact = (key, value, context) => (Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? JSON.rawJSON(context.source) : value);

async function request(method, where, options) {
  const response = await open(method, where, options);
  const content = await response.text();
  if (!content) return true;
  try {
    return JSON.parse(content, exact);
  } catch {
    throw new Problem(response.status, { detail: 'The response is not JSON. Is there a proxy that needs a login?' });
  }
}

export const get = (where, query) => request('GET', where, { query });
export const post = (where, body, query) => request('POST', where, { body, query });
export const put = (where, body) => request('PUT', where, { body });
export const patch = (where, body) => request('PATCH', where, { body });
export const remove = (where, query) => request('DELETE', where, { query });
