package network

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tinylet/tinylet/agent/store/filewatch"
	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/net/cni"
)

// firstRestore is the longest first wait before a file is written again that was deleted
// or overwritten repeatedly. The first time, it is written at once. The waits double up
// to resyncInterval. A period of resyncInterval without a change resets them.
const firstRestore = 2 * time.Second

// watcher is a filewatch.Watch; tests have one that works in virtual time.
type watcher interface {
	Set(folders ...string) (fresh bool, err error)
	Changed() <-chan struct{}
	Take() (filewatch.Changes, error)
	Close()
}

func newWatcher() watcher {
	return filewatch.New(filewatch.Config{Events: filewatch.Writes, Names: true})
}

// watchFiles triggers a reconcile when the network configuration, the plugin's link
// or the loopback script is deleted or changed by others, until ctx ends.
func (n *Network) watchFiles(ctx context.Context) {
	backoff := wait.Backoff{First: firstRestore, Max: resyncInterval}
	var last time.Time
	var due <-chan time.Time // nil while no file has changed
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.files.Changed():
			changes, _ := n.files.Take() // place handles the error
			if due != nil || !n.concern(changes) {
				continue
			}
			wait := time.Duration(0)
			if time.Since(last) < resyncInterval {
				wait = backoff.Next()
			} else {
				backoff.Reset()
			}
			due = time.After(wait)
		case <-due:
			due, last = nil, time.Now()
			n.Trigger()
		}
	}
}

// concern reports whether changes concern a maintained file.
func (n *Network) concern(changes filewatch.Changes) bool {
	return changes.All || slices.ContainsFunc(slices.Collect(maps.Keys(changes.Names)), n.concerns)
}

// concerns reports whether a changed path is a maintained file with another state
// than desired.
func (n *Network) concerns(path string) bool {
	n.mu.Lock()
	written := n.written
	n.mu.Unlock()
	switch filepath.Base(path) {
	case FileName:
		data, err := folder{filepath.Dir(path)}.read()
		return err != nil || !bytes.Equal(data, written)
	case Plugin:
		return !linked(path, n.cfg.Binary)
	case cni.LoopbackType:
		_, err := os.Stat(path)
		return err != nil
	}
	return false
}

// place watches the folders of the maintained files, in mode cni none. fresh is true if a
// change may have been missed, so that another reconcile is needed soon.
func (n *Network) place() (fresh bool) {
	var folders []string
	if n.kept {
		folders = append(slices.Clone(n.directories.pluginDirs), n.folder.path)
	}
	fresh, err := n.files.Set(folders...)
	if err != nil && n.unwatched != err.Error() {
		n.cfg.Log.Warn("cannot watch network files, check periodically", "error", err)
	}
	n.unwatched = ""
	if err != nil {
		n.unwatched = err.Error()
	}
	return fresh
}
