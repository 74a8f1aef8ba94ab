package diskusage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// bounds limits all walks of one measurement together: the number of directory
// entries, and the time.
type bounds struct {
	entries int
	time    time.Duration
}

// measurement is one measurement of all places.
type measurement struct {
	*Meter
	bounds
	table    *mounts
	before   known
	roots    map[string]string // with symbolic links resolved
	deadline time.Time         // deadline for file systems that are not local

	// Reused for local file systems, one after the other.
	st       unix.Statfs_t
	walker   Walker
	freeWalk *Walk
}

// measure measures all places.
func (m *Meter) measure(ctx context.Context, within bounds) error {
	pods, err := m.cfg.Pods(ctx)
	if err != nil {
		return fmt.Errorf("measure disks: %w", err)
	}
	table, err := readMounts(m.mountinfo)
	if err != nil {
		return fmt.Errorf("measure disks: %w", err)
	}
	l := &measurement{Meter: m, bounds: within, table: table, before: m.known, roots: map[string]string{}}
	m.measuredAt = time.Now()
	l.deadline = m.measuredAt.Add(m.cfg.RemoteTimeout)
	l.list(pods)
	for _, s := range m.known.systems {
		l.stat(ctx, s)
	}
	l.walk(ctx)
	return nil
}

// list builds the list of places to measure, with their previous state. It drops
// places that are gone.
func (l *measurement) list(pods []Pod) {
	k := &l.known
	*k = known{
		pods:    make([]podState, len(pods)),
		trees:   make(map[Place]*tree, len(l.before.trees)),
		systems: make(map[string]*system, len(l.before.systems)),
	}
	k.node = l.system(l.resolveRoot(l.cfg.Node))
	if k.image = l.before.image; k.image.path != "" {
		k.image.system = l.system(l.resolveRoot(k.image.path))
	}
	for i := range pods {
		p, s := &pods[i], &k.pods[i]
		s.uid, s.namespace = p.UID, p.Namespace
		s.volumes = make([]volumeState, 0, len(p.Volumes))
		for j := range p.Volumes {
			v := &p.Volumes[j]
			if c := l.volume(v); c.system != nil {
				s.volumes = append(s.volumes, volumeState{name: v.Name, claim: v.Claim, ephemeral: v.Ephemeral, measured: c})
			}
		}
		s.containers = make([]containerState, len(p.Containers))
		for j := range p.Containers {
			c, into := &p.Containers[j], &s.containers[j]
			into.name = c.Name
			if c.Logs != (Place{}) {
				into.logs = l.tree(c.Logs)
			}
			if upper, ok := l.table.upper(c.ID); ok {
				into.rootfs = l.tree(upper)
			}
		}
		for _, place := range p.Other {
			s.other = append(s.other, l.tree(place))
		}
	}
	if big := l.before.unfinished; big != nil {
		if k.trees[big.place] == big {
			k.unfinished = big
		} else if big.walk != nil {
			big.walk.Drop()
		}
	}
}

// volume returns what to measure for a volume; its system is nil if there is none.
func (l *measurement) volume(v *Volume) measured {
	path := filepath.Join(l.resolveRoot(v.Root), v.Path)
	if _, mounted := l.table.find(path); mounted {
		return measured{system: l.system(path)}
	}
	if v.Mounted {
		return measured{}
	}
	return l.tree(v.Place)
}

func (l *measurement) tree(p Place) measured {
	t := l.known.trees[p]
	if t == nil {
		if t = l.before.trees[p]; t == nil {
			t = &tree{place: p}
		}
		l.known.trees[p] = t
		path := filepath.Join(l.resolveRoot(p.Root), p.Path)
		t.system = l.system(path)
		t.hasMounts = l.table.below(path)
	}
	return measured{t, t.system}
}

// system returns the file system that a path is on.
func (l *measurement) system(path string) *system {
	m, ok := l.table.of(path)
	if !ok {
		m.path = path // the mount table has no /
	}
	s := l.known.systems[m.path]
	if s == nil {
		if s = l.before.systems[m.path]; s == nil {
			s = &system{path: m.path}
		}
		l.known.systems[m.path] = s
		s.local = m.local
	}
	return s
}

// resolveRoot returns a root with its symbolic links resolved, as in the mount table.
func (l *measurement) resolveRoot(root string) string {
	real, ok := l.roots[root]
	if !ok {
		var err error
		if real, err = filepath.EvalSymlinks(root); err != nil {
			real = filepath.Clean(root) // missing, so nothing is below it either
		}
		l.roots[root] = real
	}
	return real
}

// stat measures a file system. If it does not respond in time, the previous values
// stay. After an error they are unknown.
func (l *measurement) stat(ctx context.Context, s *system) {
	if s.local {
		l.set(s, &l.st, l.statfs(s.path, &l.st))
		return
	}
	var st unix.Statfs_t
	var err error
	if l.runRemote(ctx, s, func() { err = l.statfs(s.path, &st) }) {
		l.set(s, &st, err)
	}
}

// set stores the result of statfs for a file system.
func (l *measurement) set(s *system, st *unix.Statfs_t, err error) {
	if err == nil {
		s.fsInfo = fsInfoOf(st, time.Now())
		return
	}
	s.fsInfo = fsInfo{}
	if !errors.Is(err, fs.ErrNotExist) {
		l.cfg.Log.Warn("cannot measure file system", "error", err)
	}
}

// runRemote runs f, which may hang because the file system is not local, and reports
// whether it has completed.
func (l *measurement) runRemote(ctx context.Context, s *system, f func()) bool {
	wait := time.Until(l.deadline)
	return wait > 0 && l.guard.Do(ctx, s.path, wait, f)
}
