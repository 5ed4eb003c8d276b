// Tidemill's record protocol for Node.js, without dependencies: its messages, and the loop that a plugin is.
//
//     serve({ name: 'Mine', version: '1.0', settings: [...], start({ config }) { ... }, poll() { ... } });
//
// A method per request, named as in record_protocol.proto; it gets the request and returns the answer, or a promise of
// it. One that is missing has nothing to say. What it throws is answered as an error: a PluginError as what it is,
// anything else as a bug, with its stack.
'use strict';

// --------------------------------------------------------------------------------------- record_protocol.proto

const one = (number, type) => ({ number, type });
const optional = (number, type) => ({ number, type, optional: true });
const many = (number, type) => ({ number, type, many: true });
const map = (number) => ({ number, type: { key: one(1, 'string'), value: one(2, 'string') }, many: true, map: true });

const Place = { topic: one(1, 'string'), partition: one(2, 'int'), offset: optional(3, 'int') };
const Positions = { positions: many(1, { source_partition: one(1, 'string'), source_offset: optional(2, 'string') }) };
const Converter = { kind: one(1, 'string'), options: map(2) };
const Headers = { headers: many(1, { key: one(1, 'string'), value: optional(2, 'bytes') }) };
const Batch = {
  topic: one(1, 'string'), keys: many(2, 'bytes'), values: many(3, 'bytes'), null_keys: many(4, 'int'),
  null_values: many(5, 'int'), headers: many(6, Headers), timestamps_ms: many(7, 'zigzag'),
  source_partition: one(8, 'string'), source_offset: optional(9, 'string'), partition: one(10, 'int'), offsets: many(11, 'int'),
};
const Setting = {
  name: one(1, 'string'), type: one(2, 'string'), required: one(3, 'int'), default: optional(4, 'string'), documentation: one(5, 'string'),
};

const ToPlugin = {
  number: one(1, 'int'),
  describe: optional(2, { protocol_version: one(1, 'int'), role: one(2, 'int') }),
  validate: optional(3, { config: map(1) }),
  split: optional(4, { config: map(1), tasks_max: one(2, 'int') }),
  start: optional(5, { connector: one(1, 'string'), task: one(2, 'int'), config: map(3), key_converter: optional(4, Converter), value_converter: optional(5, Converter) }),
  position: optional(6, Positions),
  poll: optional(7, { wait_ms: one(1, 'int'), records_max: one(2, 'int'), bytes_max: one(3, 'int') }),
  commit: optional(8, Positions),
  open: optional(9, { partitions: many(1, Place) }),
  close: optional(10, { partitions: many(1, Place) }),
  put: optional(11, { batches: many(1, Batch) }),
  flush: optional(12, {}),
  stop: optional(13, {}),
};

const FromPlugin = {
  number: one(1, 'int'),
  described: optional(2, { protocol_version: one(1, 'int'), name: one(2, 'string'), version: one(3, 'string'), settings: many(4, Setting) }),
  validated: optional(3, { problems: many(1, { setting: one(1, 'string'), message: one(2, 'string') }) }),
  divided: optional(4, { tasks: many(1, { changes: map(1) }) }),
  started: optional(5, { wanted: many(1, 'string') }),
  polled: optional(6, { batches: many(1, Batch), wanted: many(2, 'string') }),
  opened: optional(7, { positions: many(1, Place) }),
  taken: optional(8, { refused: many(1, { index: one(1, 'int'), message: one(2, 'string'), retry: one(3, 'int') }) }),
  done: optional(9, {}),
  error: optional(10, { kind: one(1, 'int'), message: one(2, 'string'), stack: one(3, 'string'), retry_after_ms: one(4, 'int'), setting: one(5, 'string') }),
  log: optional(11, { level: one(1, 'int'), message: one(2, 'string') }),
  waiting: optional(12, { message: one(1, 'string') }),
};

const ANSWERS = {
  describe: 'described', validate: 'validated', split: 'divided', start: 'started', position: 'done', poll: 'polled',
  commit: 'done', open: 'opened', close: 'done', put: 'taken', flush: 'done', stop: 'done',
};
const KINDS = { BUG: 0, RETRY: 1, NOT_CONNECTED: 2, CONFIGURATION: 3, FATAL: 4, END_OF_INPUT: 5 };
const LEVELS = { info: 0, debug: 1, warning: 2, error: 3 };

// ---------------------------------------------------------------------------------------------------- protobuf

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, Number(value)]);
}

const isNumber = (type) => type === 'int' || type === 'zigzag';
const zigzag = (type, value) => (type === 'zigzag' ? (value < 0 ? -2 * value - 1 : 2 * value) : value);
const unzigzag = (type, value) => (type === 'zigzag' ? (value % 2 ? -(value + 1) / 2 : value / 2) : value);
const delimited = (data) => Buffer.concat([varint(data.length), data]);

function encoded(type, value) {
  if (isNumber(type)) return varint(zigzag(type, value));
  if (type === 'string' || type === 'bytes') return delimited(Buffer.from(value));
  return delimited(encode(type, value));
}

function encode(message, content) {
  const parts = [];
  for (const [name, field] of Object.entries(message)) {
    let value = content[name];
    if (value === undefined) continue;
    const tag = varint(field.number * 8 + (isNumber(field.type) && !field.many ? 0 : 2));
    if (field.map) value = Object.entries(value).map(([key, each]) => ({ key, value: each }));
    if (field.many && isNumber(field.type)) {
      if (value.length) parts.push(tag, delimited(Buffer.concat(value.map((each) => encoded(field.type, each)))));
    } else {
      for (const each of field.many ? value : [value]) parts.push(tag, encoded(field.type, each));
    }
  }
  return Buffer.concat(parts);
}

class Reader {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }

  more() {
    return this.at < this.data.length;
  }

  varint() {
    for (let value = 0, scale = 1; ; scale *= 128) {
      if (!this.more()) throw new RangeError('the message ends in the middle of a number');
      const byte = this.data[this.at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }

  take(length) {
    if (this.at + length > this.data.length) throw new RangeError('the message ends in the middle of a field');
    return this.data.subarray(this.at, (this.at += length));
  }

  skip(wire) { // of a field that a later version has
    if (wire === 0) this.varint();
    else this.take(wire === 1 ? 8 : wire === 5 ? 4 : this.varint());
  }
}

const defaultOf = (field) => (field.map ? {} : field.many ? [] : field.optional ? undefined : isNumber(field.type) ? 0 : field.type === 'string' ? '' : undefined);

function decode(message, data) {
  const content = {}, fields = new Map();
  for (const [name, field] of Object.entries(message)) {
    content[name] = defaultOf(field);
    fields.set(field.number, [name, field]);
  }
  for (const reader = new Reader(data); reader.more(); ) {
    const tag = reader.varint(), wire = tag % 8, [name, field] = fields.get(Math.floor(tag / 8)) || [];
    if (field === undefined) {
      reader.skip(wire);
    } else if (wire === 0) {
      const value = unzigzag(field.type, reader.varint());
      if (field.many) content[name].push(value); else content[name] = value;
    } else if (isNumber(field.type)) { // packed
      for (const packed = new Reader(reader.take(reader.varint())); packed.more(); ) content[name].push(unzigzag(field.type, packed.varint()));
    } else {
      const part = reader.take(reader.varint());
      const value = field.type === 'bytes' ? part : field.type === 'string' ? part.toString() : decode(field.type, part);
      if (field.map) content[name][value.key] = value.value;
      else if (field.many) content[name].push(value);
      else content[name] = value;
    }
  }
  return content;
}

// ---------------------------------------------------------------------------------------------------- the loop

class PluginError extends Error {
  // kind: a key of KINDS; more: { retry_after_ms } of RETRY, { setting } of CONFIGURATION
  constructor(kind, message, more = {}) {
    super(message);
    this.kind = kind;
    this.more = more;
  }
}

function failure(error) {
  if (error instanceof PluginError) return { kind: KINDS[error.kind], message: error.message, ...error.more };
  return { kind: KINDS.BUG, message: String((error && error.message) || error), stack: String((error && error.stack) || '') };
}

const spoken = (content) => delimited(encode(FromPlugin, content));
const say = (content) => process.stdout.write(spoken(content));

const log = (message, level = 'info') => say({ log: { level: LEVELS[level], message } });
const waiting = (message) => say({ waiting: { message: message || '' } });

async function* requests(input) {
  let pending = Buffer.alloc(0), chunks = [], size = 0, needed = 1;
  for await (const chunk of input) {
    chunks.push(chunk);
    size += chunk.length;
    if (size < needed) continue; // joined once, however many pieces a large message comes in
    pending = Buffer.concat(chunks);
    for (;;) {
      const length = pending.findIndex((byte) => byte < 128) + 1;
      if (length === 0) { needed = pending.length + 1; break; }
      needed = length + new Reader(pending).varint();
      if (pending.length < needed) break;
      yield decode(ToPlugin, pending.subarray(length, needed));
      pending = pending.subarray(needed);
    }
    chunks = [pending];
    size = pending.length;
  }
}

async function answer(plugin, kind, request) {
  if (kind === 'describe') {
    if (plugin.role && request.role !== plugin.role) throw new PluginError('FATAL', `${plugin.name} is a ${plugin.role === SOURCE ? 'source' : 'sink'}`);
    return { protocol_version: 1, name: plugin.name, version: plugin.version, settings: plugin.settings || [] };
  }
  return (plugin[kind] && (await plugin[kind](request))) || {};
}

async function serve(plugin) {
  globalThis.console = new console.Console(process.stderr); // standard output is for messages only
  for await (const request of requests(process.stdin)) {
    const kind = Object.keys(ANSWERS).find((each) => request[each] !== undefined);
    let message;
    try { // what cannot be written is a bug of the plugin, too
      message = spoken({ number: request.number, [ANSWERS[kind]]: await answer(plugin, kind, request[kind]) });
    } catch (error) {
      message = spoken({ number: request.number, error: failure(error) });
    }
    process.stdout.write(message);
    if (kind === 'stop') break;
  }
  process.stdout.write('', () => process.exit(0)); // also at the end of the input: whoever asked is gone
}

const SOURCE = 1, SINK = 2;

module.exports = { serve, log, waiting, PluginError, SOURCE, SINK, encode, decode, ToPlugin, FromPlugin };
