// Drives the npm client "fq" for a test: a command a line comes in, JSON, and what happens goes out.
'use strict';

const readline = require('readline');

const Client = require(process.argv[2]);
const clients = {};

function say(what) {
  process.stdout.write(JSON.stringify(what) + '\n');
}

function named(error) {
  return error ? String(error.message || error) : null;
}

const actions = {
  connect({name, options}) {
    const client = (clients[name] = new Client(options));
    client.on('ready', () => say({name, event: 'ready'}));
    client.on('error', (error) => say({name, event: 'error', error: named(error)}));
    client.on('message', (message) => {
      say({
        name,
        event: 'message',
        exchange: message.getExchange(),
        route: message.getRoute(),
        payload: message.payload.toString('latin1'),
        sender: message.getSender(),
        id: message.msgId.toString('latin1'),
        hops: message.getHops(),
      });
    });
    client.connect();
  },
  bind({name, exchange, program, flags}) {
    clients[name].bind(exchange, program, flags, (error, route) => {
      say({name, event: 'bound', error: named(error), route});
    });
  },
  unbind({name}) {
    clients[name].unbind((error, success) => {
      say({name, event: 'unbound', error: named(error), success});
    });
  },
  status({name}) {
    clients[name].status((error, status) => {
      say({name, event: 'status', error: named(error), status});
    });
  },
  consume({name}) {
    clients[name].consume();
    say({name, event: 'consuming'});
  },
  publish({name, exchange, route, payload, count}) {
    for (let number = 0; number < count; number += 1) {
      clients[name].publish({exchange, route, payload: Buffer.from(payload + number)});
    }
    say({name, event: 'published'});
  },
  shutdown({name}) {
    clients[name].shutdown();
    say({name, event: 'shut down'});
  },
  // When it last heard a heartbeat: of process.hrtime(), as a number of nanoseconds.
  heartbeat({name}) {
    const [seconds, nanoseconds] = clients[name].cmdHeartbeat.last;
    say({name, event: 'heartbeat', last: seconds * 1e9 + nanoseconds});
  },
};

readline.createInterface({input: process.stdin}).on('line', (line) => {
  const command = JSON.parse(line);
  actions[command.do](command);
}).on('close', () => process.exit(0));

say({event: 'up'});
