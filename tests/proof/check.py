#!/usr/bin/env python3
"""Checks failover.pml or relay.pml with SPIN, and that SPIN finds each mistake that the model can be given.

    check.py [--full] MODEL

Prints one line a check. Exit status: 0 right, 1 wrong, 77 skipped.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Of each model: what happens, flags, and whether all states are visited; else as many as hashing into 2^BITS bits tells
# apart, which may leave some out. `cycles`: flags with which SPIN looks for cycles, of which there must be none.
# `mistakes`: what is wrong, its flags, and words of the assertion that must fail.
FAILOVER = {
    'quick': [
        ('a rail stops', '-DSTOPS=1 -DSUSPICIONS=0', True),
        ('a rail is suspected', '-DSTOPS=0 -DSUSPICIONS=1', True),
        ('a rail stops, a chunk is set aside, nothing is copied by its sender', '-DSTOPS=1 -DSUSPICIONS=0 -DKEEPS=1 -DCOPIES=0', True),
    ],
    'full': [
        ('two operations, a rail stops, nothing is copied', '-DSTOPS=1 -DSUSPICIONS=0 -DOPERATIONS=2 -DCOPIES=0', True),
        ('two operations, a rail is suspected, nothing is copied', '-DSTOPS=0 -DSUSPICIONS=1 -DOPERATIONS=2 -DCOPIES=0', True),
        ('a rail stops, a chunk is set aside', '-DSTOPS=1 -DSUSPICIONS=0 -DKEEPS=1', True),
        ('a rail is suspected, two chunks are set aside', '-DSTOPS=0 -DSUSPICIONS=1 -DKEEPS=2', True),
        ('two operations, a rail stops, a chunk is set aside', '-DSTOPS=1 -DSUSPICIONS=0 -DOPERATIONS=2 -DKEEPS=1 -DCOPIES=0', False),
        ('a rail stops, one is suspected, nothing is copied', '-DCOPIES=0', False),
        ('a rail stops, one is suspected', '', False),
        ('two blocks, a rail stops', '-DSTOPS=1 -DSUSPICIONS=0 -DBLOCKS=2', False),
        ('three blocks, a rail is suspected', '-DSTOPS=0 -DSUSPICIONS=1 -DBLOCKS=3', False),
        ('rails stop twice, nothing is copied', '-DSTOPS=2 -DSUSPICIONS=0 -DCOPIES=0', False),
    ],
    'cycles': '-DSTOPS=1 -DSUSPICIONS=0 -DCOPIES=0',
    'mistakes': [
        ('acknowledged when it arrived, before it was used', '-DEARLY_ACK', 'acknowledged=='),
        ('returned before the acknowledgements came', '-DEARLY_RETURN', 'content'),
        ('duplicates are not looked for', '-DNO_DUPLICATE_CHECK', 'memory'),
        ("an incarnation's numbers are used again", '-DREUSED_NUMBERS -DCOPIES=0', 'used'),
        ('what was under way is not sent again', '-DNO_RESEND', 'acknowledged=='),
        ('nobody acknowledges or sends for a rank that returned', '-DNO_GUARD', 'acknowledged=='),
        ('a source is overwritten before its receiver used it', '-DOVERWRITTEN_SOURCE', 'memory|content'),
        ('an identity without the operation', '-DNO_SEQUENCE -DOPERATIONS=2 -DSTOPS=0 -DCOPIES=0', 'content'),
        ('set aside without a copy', '-DKEPT_IN_PLACE -DKEEPS=1', 'acknowledged=='),
    ],
}
RELAY = {
    'quick': [
        ('the rail stops, a packet is lost', '-DSTOPS=1 -DLOSSES=1', True),
        ('the rail stops, a chunk is set aside', '-DSTOPS=1 -DLOSSES=0 -DKEEPS=1', True),
    ],
    'full': [
        ('the rail is suspected, a packet is lost, a chunk is set aside', '-DSTOPS=0 -DSUSPICIONS=1 -DLOSSES=1 -DKEEPS=1', True),
        ('the rail stops, chunks may be copied, a packet is lost', '-DSTOPS=1 -DLOSSES=1 -DCOPIES=2', True),
        ('the rail stops, a packet is late', '-DSTOPS=1 -DLOSSES=0 -DLATE=1', True),
        ('two operations, the rail stops, a packet is lost', '-DSTOPS=1 -DLOSSES=1 -DOPERATIONS=2', False),
        ('two blocks, the rail stops, a packet is lost', '-DSTOPS=1 -DLOSSES=1 -DBLOCKS=2', False),
        ('the rail stops, one packet is lost and one late, a chunk is set aside', '-DSTOPS=1 -DLATE=1 -DKEEPS=1', False),
        ('the rail stops, the relay withdraws, a packet is lost', '-DSTOPS=1 -DWITHDRAWALS=1', False),
        ('the rail stops twice, a packet is lost', '-DSTOPS=2', False),
    ],
    'cycles': '-DSTOPS=1 -DLOSSES=0',
    'mistakes': [
        ('whoever passes a chunk on acknowledges it', '-DHOP_BY_HOP', 'acknowledged=='),
        ('a number that was taken before is not answered', '-DSILENT_DUPLICATES', 'acknowledged=='),
        ('what was relayed when the rail came back is left to the relay', '-DNO_TAKING_BACK', 'acknowledged=='),
        ('nobody passes chunks on for a rank that returned', '-DNO_GUARD', 'acknowledged=='),
        ('what came over the rail is not known when it comes through the relay', '-DNO_DUPLICATE_CHECK', 'memory'),
        ('numbers begin anew', '-DREUSED_NUMBERS -DLOSSES=0 -DLATE=1 -DWITHDRAWALS=1', 'used'),
    ],
}
MODELS = {'failover.pml': FAILOVER, 'relay.pml': RELAY}
BITS = 27


def run(*command, folder, seconds=None):
    try:
        return subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f'check.py: {" ".join(command)} did not end within {seconds} s')


def search(model, flags, exact, long=False, cycles=False, ends_early=False):
    """Verdict of one search: (assertion that failed or '', states)."""
    seconds = 6000 if long else 600
    with tempfile.TemporaryDirectory() as folder:
        made = run('spin', '-a', *flags.split(), str(model), folder=folder)
        if made.returncode != 0 or 'rror' in made.stdout:
            sys.exit(f'check.py: spin does not accept the model with {flags}:\n{made.stdout}')
        how = ['-DMEMLIM=6000'] if exact else ['-DBITSTATE']
        if exact and long:
            how.append('-DCOLLAPSE')  # a third of the memory, twice the time
        how.append('-DNP' if cycles else '-DSAFETY')
        # Compiling takes longer than a search that ends early.
        how.append('-O0' if ends_early else '-O2' if long else '-O1')
        built = run('gcc', '-w', '-DVECTORSZ=4096', *how, '-o', 'pan', 'pan.c', folder=folder)
        if built.returncode != 0:
            sys.exit(f'check.py: gcc does not compile the search:\n{built.stdout}')
        limits = ['-m100000', '-n'] + ([] if exact else [f'-w{BITS if long else 24}', '-k3']) + (['-l'] if cycles else [])
        output = run('./pan', *limits, folder=folder, seconds=seconds).stdout
    errors = re.search(r'errors: (\d+)', output)
    states = re.search(r'^\s*([\d.e+]+) states, stored', output, re.MULTILINE)
    if errors is None or states is None or 'max search depth too small' in output or 'out of memory' in output:
        sys.exit(f'check.py: the search did not end:\n{output}')
    failed = re.search(r'pan:\d+: (.*) \(at depth', output)
    wrong = failed.group(1) if failed else 'an error' if errors.group(1) != '0' else ''
    return wrong, int(float(states.group(1)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('model', type=pathlib.Path)
    parser.add_argument('--full', action='store_true')
    arguments = parser.parse_args()
    for tool in ('spin', 'gcc'):
        if shutil.which(tool) is None:
            print(f'skipped: {tool} is not installed')
            sys.exit(77)
    model = arguments.model.resolve()
    bad = 0
    checks = MODELS[model.name]
    for what, flags, exact in checks['full' if arguments.full else 'quick']:
        wrong, states = search(model, flags, exact, long=arguments.full)
        print(f'{"WRONG" if wrong else "right"}: {what}: {states} states{"" if exact else ", hashed"}'
              f'{": " + wrong if wrong else ""}', flush=True)
        bad += wrong != ''
    if not arguments.full:
        wrong, states = search(model, checks['cycles'], True, cycles=True)
        print(f'{"WRONG" if wrong else "right"}: nothing repeats for ever: {states} states'
              f'{": " + wrong if wrong else ""}', flush=True)
        bad += wrong != ''
        for what, flags, words in checks['mistakes']:
            wrong, states = search(model, flags, False, ends_early=True)
            found = re.search(words, wrong) is not None
            print(f'{"found" if found else "NOT FOUND"}: {what}: after {states} states', flush=True)
            if not found and wrong:
                print(f'  but this failed: {wrong}')
            bad += not found
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
