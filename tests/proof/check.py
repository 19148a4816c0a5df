#!/usr/bin/env python3
"""Checks failover.pml with SPIN, and that SPIN finds each mistake that the model can be given.

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

# What happens, flags of the model, and whether all states are visited; else as many as hashing into 2^BITS bits tells
# apart, which may leave some out.
QUICK = [
    ('a rail stops', '-DSTOPS=1 -DSUSPICIONS=0', True),
    ('a rail is suspected', '-DSTOPS=0 -DSUSPICIONS=1', True),
]
FULL = [
    ('two operations, a rail stops, nothing is copied', '-DSTOPS=1 -DSUSPICIONS=0 -DOPERATIONS=2 -DCOPIES=0', True),
    ('two operations, a rail is suspected, nothing is copied', '-DSTOPS=0 -DSUSPICIONS=1 -DOPERATIONS=2 -DCOPIES=0', True),
    ('a rail stops, one is suspected, nothing is copied', '-DCOPIES=0', False),
    ('a rail stops, one is suspected', '', False),
    ('two blocks, a rail stops', '-DSTOPS=1 -DSUSPICIONS=0 -DBLOCKS=2', False),
    ('three blocks, a rail is suspected', '-DSTOPS=0 -DSUSPICIONS=1 -DBLOCKS=3', False),
    ('rails stop twice, nothing is copied', '-DSTOPS=2 -DSUSPICIONS=0 -DCOPIES=0', False),
]
# Flags with which SPIN looks for cycles: there must be none.
CYCLES = '-DSTOPS=1 -DSUSPICIONS=0 -DCOPIES=0'
# What is wrong, its flags, and words of the assertion that must fail.
MISTAKES = [
    ('acknowledged when it arrived, before it was used', '-DEARLY_ACK', 'acknowledged=='),
    ('returned before the acknowledgements came', '-DEARLY_RETURN', 'content'),
    ('duplicates are not looked for', '-DNO_DUPLICATE_CHECK', 'memory'),
    ("an incarnation's numbers are used again", '-DREUSED_NUMBERS', 'used'),
    ('what was under way is not sent again', '-DNO_RESEND', 'acknowledged=='),
    ('nobody acknowledges or sends for a rank that returned', '-DNO_GUARD', 'acknowledged=='),
    ('a source is overwritten before its receiver used it', '-DOVERWRITTEN_SOURCE', 'memory|content'),
    ('an identity without the operation', '-DNO_SEQUENCE -DOPERATIONS=2', 'content'),
]
BITS = 27


def run(*command, folder, seconds=None):
    try:
        return subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f'check.py: {" ".join(command)} did not end within {seconds} s')


def search(model, flags, exact, cycles=False, seconds=3000):
    """Verdict of one search: (assertion that failed or '', states, whether all were visited)."""
    with tempfile.TemporaryDirectory() as folder:
        made = run('spin', '-a', *flags.split(), str(model), folder=folder)
        if made.returncode != 0 or 'rror' in made.stdout:
            sys.exit(f'check.py: spin does not accept the model with {flags}:\n{made.stdout}')
        how = ['-DCOLLAPSE', '-DMEMLIM=6000'] if exact else ['-DBITSTATE']
        how.append('-DNP' if cycles else '-DSAFETY')
        # Compiling takes longer than a search that ends early.
        built = run('gcc', '-O2' if exact or seconds > 120 else '-O1', '-w', '-DVECTORSZ=4096', *how, '-o', 'pan', 'pan.c', folder=folder)
        if built.returncode != 0:
            sys.exit(f'check.py: gcc does not compile the search:\n{built.stdout}')
        limits = ['-m100000', '-n'] + ([] if exact else [f'-w{BITS if seconds > 120 else 24}', '-k3']) + (['-l'] if cycles else [])
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
    for what, flags, exact in FULL if arguments.full else QUICK:
        wrong, states = search(model, flags, exact)
        print(f'{"WRONG" if wrong else "right"}: {what}: {states} states{"" if exact else ", hashed"}'
              f'{": " + wrong if wrong else ""}', flush=True)
        bad += wrong != ''
    if not arguments.full:
        wrong, states = search(model, CYCLES, True, cycles=True)
        print(f'{"WRONG" if wrong else "right"}: nothing repeats for ever: {states} states'
              f'{": " + wrong if wrong else ""}', flush=True)
        bad += wrong != ''
        for what, flags, words in MISTAKES:
            wrong, states = search(model, flags, False, seconds=120)
            found = re.search(words, wrong) is not None
            print(f'{"found" if found else "NOT FOUND"}: {what}: after {states} states', flush=True)
            if not found and wrong:
                print(f'  but this failed: {wrong}')
            bad += not found
    sys.exit(1 if bad else 0)


if __name__ == '__main__':
    main()
