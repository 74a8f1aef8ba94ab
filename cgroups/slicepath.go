package cgroups

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotSlice says that a path is not one that systemd gives a slice.
var ErrNotSlice = errors.New("not the path of a slice")

// slice is one of systemd's: its unit and its group below the hierarchy's
// root, such as a-b.slice and a.slice/a-b.slice.
type slice struct {
	unit, path string
}

const sliceSuffix = ".slice"

// rootSlice is the unit of the hierarchy's root (systemd.special(7)).
const rootSlice = "-.slice"

// slicesOf are the slices from the first below the root down to path, whose
// folders systemd names: each lies in that of the prefix of its name up to the
// last dash (systemd.slice(5)). Any other path is ErrNotSlice, and so is the
// root.
func slicesOf(path string) ([]slice, error) {
	rel, err := relative(path)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(rel, "/")
	out := make([]slice, len(parts))
	prefix := ""
	for i, unit := range parts {
		name, ok := strings.CutSuffix(unit, sliceSuffix)
		own, below := strings.CutPrefix(name, prefix)
		if !ok || !below || own == "" || strings.Contains(own, "-") {
			return nil, fmt.Errorf("cgroup path %q: %w: %q in it should be %sNAME%s with no dash in NAME", path, ErrNotSlice, unit, prefix, sliceSuffix)
		}
		out[i] = slice{unit: unit, path: strings.Join(parts[:i+1], "/")}
		prefix = name + "-"
	}
	return out, nil
}
