/*
 * usage: lint.js DIRECTORY FILE.yaml
 *
 * DIRECTORY holds node_modules.  Prints a line for each problem and leaves
 * with 1 where there is any: a warning is a problem too.
 */

'use strict';

const path = require('path');

const [directory, file] = process.argv.slice(2).map((p) => path.resolve(p));
const modules = path.join(directory, 'node_modules');
const core = require(path.join(modules, '@redocly/openapi-core'));

const RULES = {
  'operation-operationId': 'error',
  'operation-operationId-unique': 'error',
  'operation-4xx-problem-details-rfc7807': 'off',
  'no-invalid-schema-examples': 'error',
  'no-invalid-media-type-examples': {
    severity: 'error',
    allowAdditionalProperties: false,
  },
  'no-unused-components': 'error',
  'operation-description': 'error',
  'parameter-description': 'error',
  'tag-description': 'error',
  'operation-tag-defined': 'error',
  'no-http-verbs-in-paths': 'off',

  /* a server that is reached on this host only is what is shipped */
  'no-server-example.com': 'off',

  /* the rule asks it of every operation; probes have none to give */
  'operation-4xx-response': 'off',
};

function line(problem) {
  const where = problem.location[0];

  return `${problem.severity} ${problem.ruleId} ` +
         `${(where && where.pointer) || ''}: ${problem.message}`;
}

(async () => {
  const config = await core.createConfig({
    extends: ['recommended-strict'],
    rules: RULES,
  });
  const problems = await core.lint({ ref: file, config });

  problems.forEach((problem) => console.log(line(problem)));
  process.exit(problems.length === 0 ? 0 : 1);
})().catch((error) => {
  console.log(String(error.stack || error));
  process.exit(2);
});
