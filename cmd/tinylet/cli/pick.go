package cli

import (
	"fmt"
	"slices"
	"strings"
)

// podName is what a pod is asked for by.
type podName struct {
	namespace, name string
}

func (n podName) String() string { return n.namespace + "/" + n.name }

// pick finds the pod that arg means among names: an exact name or
// namespace/name, or else the only one that begins so. It answers the index
// of the first of several with that same name.
func pick(names []podName, arg string) (int, error) {
	exact := distinct(names, func(n podName) bool { return n.name == arg || n.String() == arg })
	found := exact
	if len(found) == 0 && arg != "" {
		found = distinct(names, func(n podName) bool {
			return strings.HasPrefix(n.name, arg) || strings.HasPrefix(n.String(), arg)
		})
	}
	switch len(found) {
	case 0:
		return 0, &ExitError{Code: codeNotFound, Err: fmt.Errorf("no pod is named %q or begins so; see tinylet ps", arg)}
	case 1:
		return found[0], nil
	}
	var list []string
	for _, i := range found {
		list = append(list, names[i].String())
	}
	slices.Sort(list)
	return 0, &ExitError{Code: codeNotFound, Err: fmt.Errorf("%q may be any of %s; write more of the name", arg, strings.Join(list, ", "))}
}

// distinct lists the first index of every name that matches.
func distinct(names []podName, matches func(podName) bool) []int {
	var out []int
	seen := map[podName]bool{}
	for i, n := range names {
		if matches(n) && !seen[n] {
			seen[n] = true
			out = append(out, i)
		}
	}
	return out
}
