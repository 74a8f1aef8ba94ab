package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// keepTree is a tree of the components of paths that are not deleted. An empty subtree
// means that everything below the path is kept.
type keepTree map[string]keepTree

func keepTreeOf(all []Foreign) keepTree {
	tree := keepTree{}
	for i := range all {
		for _, rel := range all[i].keepPaths {
			at := tree
			for name := range strings.SplitSeq(rel, "/") {
				if at[name] == nil {
					at[name] = keepTree{}
				}
				at = at[name]
			}
		}
	}
	return tree
}

// removeExcept deletes the content of a directory, except for keep. If only is
// not empty, it deletes only these names. It continues after an error and returns
// all errors, joined.
func removeExcept(ctx context.Context, dir *os.File, keep keepTree, only ...string) error {
	all, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range all {
		if len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		below, kept := keep[name]
		switch {
		case !kept:
			errs = append(errs, removeTree(ctx, dir, name))
		case len(below) > 0:
			f, err := openWithin(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
			if err == nil {
				err = removeExcept(ctx, f, below)
				_ = f.Close() // nothing was written
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// holdsOnly reports whether a directory has nothing that is not in keep.
func holdsOnly(dir *os.File, rel string, keep keepTree) bool {
	for _, name := range names(dir, rel) {
		below, kept := keep[name]
		if !kept || len(below) > 0 && !holdsOnly(dir, filepath.Join(rel, name), below) {
			return false
		}
	}
	return true
}
