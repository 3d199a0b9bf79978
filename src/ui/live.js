// SPDX-License-Identifier: MIT
// Server-sent events over fetch: unlike EventSource it can resume with Last-Event-ID after the tab was hidden, and it shows
// the status of a refused request. A stream is open only while the tab is visible.

import { open } from './api.js';

const SILENCE_MS = 40000; // the server sends a comment more often than this
const RETRY_MAX_MS = 5000;
const DRAW_MS = 250;

// Splits a stream of text into events; the data of the server's events is one line. A chunk may end in the middle of a line.
function parser(onEvent) {
  let rest = '';
  let event = {};
  const line = (content) => {
    if (content) {
      const [, key, value] = /^([^:]*):? ?(.*)$/.exec(content);
      event[key] = value;
    } else {
      onEvent(event);
      event = {};
    }
  };
  return (chunk) => {
    const lines = (rest + chunk).split(/\r?\n/);
    rest = lines.pop();
    lines.forEach(line);
  };
}

// stream({query, onEvent(type, data), onState(state)}): state is connecting, live, lost or hidden. Returns {close}.
export function stream({ query, onEvent, onState }) {
  let abort = null;
  let lastId;
  let timer = 0;
  let delay = 500;
  let closed = false;

  const read = async (response, alive) => {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const feed = parser(({ event, data, id }) => {
      if (id !== undefined) lastId = id;
      if (data) onEvent(event, JSON.parse(data));
    });
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      feed(value);
    }
  };

  const connect = async () => {
    const mine = new AbortController();
    let watchdog = 0;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => mine.abort(), SILENCE_MS);
    };
    abort = mine;
    try {
      alive();
      const headers = lastId === undefined ? {} : { 'Last-Event-ID': lastId };
      const response = await open('GET', 'v1/events', { query, signal: mine.signal, headers });
      delay = 500;
      onState('live');
      await read(response, alive);
    } catch (error) {
      if (error.status === 401 || error.status === 403 || error.status === 400) {
        closed = true;
        onState('lost', error);
      }
    }
    clearTimeout(watchdog);
    if (closed || abort !== mine) return;
    onState('lost');
    timer = setTimeout(connect, delay);
    delay = Math.min(delay * 2, RETRY_MAX_MS);
  };

  const stop = () => {
    clearTimeout(timer);
    const old = abort;
    abort = null;
    old?.abort();
  };

  const visibility = () => {
    stop();
    if (document.hidden) {
      onState('hidden');
    } else {
      onState('connecting');
      connect();
    }
  };
  document.addEventListener('visibilitychange', visibility);
  visibility();
  return {
    close() {
      closed = true;
      document.removeEventListener('visibilitychange', visibility);
      stop();
    },
  };
}

// Calls `draw` soon, but at most four times per second and never in a hidden tab.
export function throttle(draw, every = DRAW_MS) {
  let last = -Infinity;
  let pending = 0;
  const run = () => {
    pending = 0;
    if (document.hidden) return;
    last = performance.now();
    draw();
  };
  return () => {
    if (!pending) pending = setTimeout(run, Math.max(0, last + every - performance.now()));
  };
}

export const changed = (sample) => Object.values(sample.counts).some((n) => n > 0);
