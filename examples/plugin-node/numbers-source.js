// A source: counts from 1 to `count`, `per.second` at most, and goes on where it was after any end of it.
'use strict';
const { serve, PluginError, SOURCE } = require('./tidemill');

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

serve({
  name: 'Numbers',
  version: '1.0',
  role: SOURCE,
  settings: [
    { name: 'topic', required: 1, documentation: 'Topic to write to' },
    { name: 'count', type: 'int', default: '1000', documentation: 'The last number' },
    { name: 'per.second', type: 'int', default: '10000', documentation: 'How many numbers in a second, about' },
  ],

  validate({ config }) {
    const wrong = ['count', 'per.second'].filter((name) => Number(config[name]) < 1);
    return { problems: wrong.map((setting) => ({ setting, message: `${setting} is at least 1.` })) };
  },

  split() {
    return { tasks: [{ changes: {} }] }; // there is one row of numbers
  },

  start({ config }) {
    this.topic = config.topic;
    this.count = Number(config.count);
    this.perSecond = Number(config['per.second']);
    this.partition = JSON.stringify({ numbers: config.topic });
    this.last = 0;
    return { wanted: [this.partition] };
  },

  position({ positions: [{ source_offset }] }) {
    if (source_offset !== undefined) this.last = JSON.parse(source_offset).last;
    if (!Number.isInteger(this.last)) throw new PluginError('FATAL', `the stored offset ${source_offset} is no number`);
  },

  async poll({ wait_ms, records_max }) {
    if (this.last >= this.count) throw new PluginError('END_OF_INPUT', 'all numbers are told');
    const much = Math.min(records_max, this.count - this.last, Math.max(1, Math.floor(this.perSecond / 10)));
    await sleep(Math.min(wait_ms, (1000 * much) / this.perSecond));
    const values = Array.from({ length: much }, () => Buffer.from(JSON.stringify({ number: ++this.last })));
    const keys = values.map((_, index) => Buffer.from(String(this.last - much + 1 + index)));
    const source_offset = JSON.stringify({ last: this.last });
    return { batches: [{ topic: this.topic, keys, values, source_partition: this.partition, source_offset }] };
  },
});
