package network

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
)

// ResultsDir is where the CNI library of the runtime keeps the result of each ADD, which it
// passes to the plugins when the pod is disconnected (libcni.CacheDir).
const ResultsDir = "/var/lib/cni/results"

// Bounds of a look at ResultsDir: files, and bytes of one.
const (
	maxResults = 10_000
	maxResult  = 1 << 20
)

// RemoveTornResults removes the results in a directory that are no JSON: those of a power cut or
// of a runtime that was killed, since the library does not write them atomically. The library of
// containerd 1.7 stops no sandbox whose result it cannot decode, so the pod would neither
// end nor start again; an absent result is no error. Call it when the runtime has connected.
func RemoveTornResults(dir string, log *slog.Logger) {
	if err := removeTornResults(dir, log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("cannot check results of CNI plugins", "dir", dir, "error", err)
	}
}

func removeTornResults(dir string, log *slog.Logger) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	list, err := root.Open(".")
	if err != nil {
		return err
	}
	defer list.Close()
	entries, err := list.ReadDir(maxResults)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		torn, err := isTorn(root, e.Name())
		if err == nil && torn {
			log.Info("removing torn result of CNI plugins", "dir", dir, "file", e.Name())
			err = root.Remove(e.Name())
		}
		if !errors.Is(err, fs.ErrNotExist) { // the runtime has removed it
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// isTorn reports whether a file is no JSON document.
func isTorn(root *os.Root, name string) (bool, error) {
	f, err := root.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxResult+1))
	return err == nil && len(data) <= maxResult && !json.Valid(data), err
}
