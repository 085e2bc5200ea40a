"""Compares two results of os-ken's switch tester: `os_ken_compare.py A B`."""

import re
import sys


def read(path):
    """Returns the verdict and the reason of each case, by its group and its name."""
    cases, group, case = {}, "", None
    with open(path, errors="replace") as lines:
        for line in lines:
            line = line.rstrip("\n")
            verdict = re.match(r"    (\S.*?)\s+(OK|ERROR)$", line)
            if verdict:
                case = (group, verdict[1])
                cases[case] = [verdict[2], ""]
            elif re.match(r"(action|group|match|meter): ", line):
                group = line
            elif line.startswith("        ") and case and not cases[case][1]:
                cases[case][1] = line.strip()
    return cases


def main():
    one, other = (read(path) for path in sys.argv[1:3])
    both = [case for case in one if case in other]
    ok = [sum(result[case][0] == "OK" for case in both) for result in (one, other)]
    print(f"{len(both)} cases in both: {ok[0]} OK in {sys.argv[1]}, {ok[1]} OK in {sys.argv[2]}")
    for case in both:
        if one[case][0] != other[case][0]:
            reason = one[case][1] or other[case][1]
            print(f"{one[case][0]:5} {other[case][0]:5} {case[0]}: {case[1]}\n            {reason[:160]}")


main()
