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

// bounds are those of all walks of a look: directory entries, and how long that
// may take.
type bounds struct {
	entries int
	time    time.Duration
}

// look is one look at everything.
type look struct {
	*Meter
	bounds
	table   *mounts
	before  known
	roots   map[string]string // without their symbolic links
	patient time.Time         // until when others are waited for

	// For what is local, one after the other.
	st     unix.Statfs_t
	walker Walker
	spare  *Walk
}

// measure looks at everything anew.
func (m *Meter) measure(ctx context.Context, within bounds) error {
	pods, err := m.cfg.Pods(ctx)
	if err != nil {
		return fmt.Errorf("measure disks: %w", err)
	}
	table, err := readMounts(m.mountinfo)
	if err != nil {
		return fmt.Errorf("measure disks: %w", err)
	}
	l := &look{Meter: m, bounds: within, table: table, before: m.known, roots: map[string]string{}}
	m.begun = time.Now()
	l.patient = m.begun.Add(m.cfg.Patience)
	l.list(pods)
	for _, s := range m.known.systems {
		l.stat(ctx, s)
	}
	l.walk(ctx)
	return nil
}

// list makes the list of what is to be measured, with what was known of it
// before. What is gone is dropped.
func (l *look) list(pods []Pod) {
	k := &l.known
	*k = known{
		pods:    make([]podState, len(pods)),
		trees:   make(map[Place]*tree, len(l.before.trees)),
		systems: make(map[string]*system, len(l.before.systems)),
	}
	k.node = l.system(l.real(l.cfg.Node))
	if k.image = l.before.image; k.image.path != "" {
		k.image.system = l.system(l.real(k.image.path))
	}
	for i := range pods {
		p, s := &pods[i], &k.pods[i]
		s.uid, s.namespace = p.UID, p.Namespace
		s.volumes = make([]volumeState, 0, len(p.Volumes))
		for j := range p.Volumes {
			v := &p.Volumes[j]
			if c := l.volume(v); c.system != nil {
				s.volumes = append(s.volumes, volumeState{name: v.Name, claim: v.Claim, ephemeral: v.Ephemeral, counted: c})
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
	if big := l.before.big; big != nil {
		if k.trees[big.place] == big {
			k.big = big
		} else if big.walk != nil {
			big.walk.Drop()
		}
	}
}

// volume is what is to be measured of a volume, if there is one.
func (l *look) volume(v *Volume) counted {
	path := filepath.Join(l.real(v.Root), v.Path)
	if _, mounted := l.table.find(path); mounted {
		return counted{system: l.system(path)}
	}
	if v.Mounted {
		return counted{}
	}
	return l.tree(v.Place)
}

func (l *look) tree(p Place) counted {
	t := l.known.trees[p]
	if t == nil {
		if t = l.before.trees[p]; t == nil {
			t = &tree{place: p}
		}
		l.known.trees[p] = t
		path := filepath.Join(l.real(p.Root), p.Path)
		t.system = l.system(path)
		t.careful = l.table.below(path)
	}
	return counted{t, t.system}
}

// system is the file system that a path is on.
func (l *look) system(path string) *system {
	m, ok := l.table.of(path)
	if !ok {
		m.path = path // a process without / in its table
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

// real is a root as the mount table has it.
func (l *look) real(root string) string {
	real, ok := l.roots[root]
	if !ok {
		var err error
		if real, err = filepath.EvalSymlinks(root); err != nil {
			real = filepath.Clean(root) // not there: nothing below it either
		}
		l.roots[root] = real
	}
	return real
}

// stat asks for the figures of a file system. Where it does not answer in
// time, those of before stay.
func (l *look) stat(ctx context.Context, s *system) {
	if s.local {
		l.set(s, &l.st, l.statfs(s.path, &l.st))
		return
	}
	var st unix.Statfs_t
	var err error
	if l.answers(ctx, s, func() { err = l.statfs(s.path, &st) }) {
		l.set(s, &st, err)
	}
}

// set takes what the kernel answered of a file system.
func (l *look) set(s *system, st *unix.Statfs_t, err error) {
	if err == nil {
		s.figures = figuresOf(st, time.Now())
		return
	}
	s.figures = figures{}
	if !errors.Is(err, fs.ErrNotExist) {
		l.cfg.Log.Warn("a file system cannot be measured", "error", err)
	}
}

// answers runs what may hang, since the file system is not local, and says
// whether it has run to its end.
func (l *look) answers(ctx context.Context, s *system, f func()) bool {
	return l.guard.do(ctx, s.path, time.Until(l.patient), f)
}
