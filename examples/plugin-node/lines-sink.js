// A sink: appends a line of JSON per record to a file, and forces them to disk when it is asked to.
'use strict';
const fs = require('fs');
const { serve, PluginError, SINK } = require('./tidemill');

const text = (bytes, isNull) => (isNull ? null : bytes.toString());

function* lines({ topic, partition, offsets, keys, values, null_keys, null_values }) {
  const nullKeys = new Set(null_keys), nullValues = new Set(null_values);
  for (let i = 0; i < values.length; i++) {
    const record = { topic, partition, offset: offsets[i], key: text(keys[i], nullKeys.has(i)), value: text(values[i], nullValues.has(i)) };
    yield `${JSON.stringify(record)}\n`;
  }
}

serve({
  name: 'Lines',
  version: '1.0',
  role: SINK,
  settings: [{ name: 'file', required: 1, documentation: 'Path of the file to append to' }],

  start({ config }) {
    try {
      this.file = fs.openSync(config.file, 'a');
    } catch (error) {
      throw new PluginError('CONFIGURATION', `cannot write to ${config.file}: ${error.message}`, { setting: 'file' });
    }
  },

  put({ batches }) {
    const all = Buffer.from(batches.flatMap((batch) => [...lines(batch)]).join(''));
    for (let done = 0; done < all.length; ) done += fs.writeSync(this.file, all, done);
  },

  flush() {
    fs.fsyncSync(this.file);
  },

  stop() {
    if (this.file !== undefined) fs.closeSync(this.file);
  },
});
