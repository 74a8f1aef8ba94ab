package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// Admit keeps a pod, and the objects that it refers to and that were read
// already, and returns when they are on the disk. It is to be called before
// the pod's first container starts, and again when the pod has changed; what
// has not costs no write. A static pod is not kept: its manifest is on the
// board. Nor is what changes of a pod that Finish was told of. The pod is not
// changed.
//
// After an error the journal is as before. ErrFull says that there is no room:
// the pod can be run all the same, but will not come back without network.
func (s *Store) Admit(ctx context.Context, p *v1.Pod) error {
	if pod.IsStatic(p) || pod.IsMirror(p) {
		return nil
	}
	if err := s.admit(ctx, p); err != nil {
		return fmt.Errorf("keep pod %s: %w", pod.RefOf(p), err)
	}
	return nil
}

func (s *Store) admit(ctx context.Context, p *v1.Pod) error {
	if err := sane(p); err != nil {
		return err
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	s.mu.Lock()
	old, reads := s.pods[p.UID], maps.Clone(s.seen.reads)
	s.mu.Unlock()
	if old != nil && old.ended {
		return nil
	}
	next := &held{outline: outline(p), started: p.Status.StartTime}
	if next.started == nil && s.config.Started != nil {
		next.started = s.config.Started(p.UID)
	}
	if old != nil && old.started != nil {
		next.started = old.started // it never changes
	}
	value, err := encode(lasting(p, next.started))
	if err != nil {
		return fmt.Errorf("encode it: %w", err)
	}
	if size := int64(len(value)) + overhead; size > s.config.MaxBytes {
		return fmt.Errorf("%w: it takes %d bytes, and all may take %d", ErrFull, size, s.config.MaxBytes)
	}
	st := &step{uid: p.UID, pod: next}
	s.revive(st)
	s.put(st, podKey(p.UID), value)
	if err := s.putReads(st, reads); err != nil {
		return err
	}
	return s.commit(st)
}

// revive takes the end off the disk that a pod had before it was forgotten, if
// that could not be written down yet.
func (s *Store) revive(st *step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ended := s.stored[endKey(st.uid)]; ended && s.dead[st.uid] {
		st.changes = append(st.changes, journal.Change{Key: endKey(st.uid)})
	}
}

// putReads adds what was read before the pod was admitted. Which volumes are
// needed, the claims tell.
func (s *Store) putReads(st *step, reads map[key]*read) error {
	for _, volumes := range []bool{false, true} {
		for k, r := range reads {
			if (k.kind == objects.KindVolume) != volumes || !st.pod.runs() || !k.refers(st.pod.outline) {
				continue
			}
			s.mu.Lock()
			needed := !volumes || s.claimed(k.name, st)
			s.mu.Unlock()
			if !needed {
				continue
			}
			if err := s.putObject(st, k, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// Finish keeps how a pod ended, so that it does not start again after the
// agent did, and returns when that is on the disk. It is to be called as soon
// as the end is decided, with the status that says so, and again when that
// changes. The pod need not be admitted, nor be one of the API server's. It is
// kept also beyond Config.MaxBytes; ErrFull then is a disk that is full.
func (s *Store) Finish(ctx context.Context, uid types.UID, status *v1.PodStatus) error {
	if err := s.finish(ctx, uid, status); err != nil {
		return fmt.Errorf("keep the end of pod %s: %w", uid, err)
	}
	return nil
}

func (s *Store) finish(ctx context.Context, uid types.UID, status *v1.PodStatus) error {
	if !terminal(status.Phase) {
		return fmt.Errorf("the phase %q is no end", status.Phase)
	}
	if err := saneUID(uid); err != nil {
		return err
	}
	value, err := encode(status)
	if err != nil {
		return fmt.Errorf("encode it: %w", err)
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	next := &held{ended: true}
	s.mu.Lock()
	if old := s.pods[uid]; old != nil {
		next.outline, next.started = old.outline, old.started
	}
	s.mu.Unlock()
	st := &step{uid: uid, pod: next, urgent: true}
	s.put(st, endKey(uid), value)
	return s.commit(st)
}

// Forget drops what there is of a pod that is gone, also of one whose value
// cannot be read, and returns when it is off the disk. After an error it is
// forgotten for this process, and the next write takes it off the disk.
func (s *Store) Forget(ctx context.Context, uid types.UID) error {
	s.mu.Lock()
	s.dead[uid] = true
	delete(s.pods, uid)
	for k := range s.seen.reads {
		if k.kind == kindToken && k.namespace == string(uid) {
			delete(s.seen.reads, k)
		}
	}
	s.mu.Unlock()
	err := s.acquire(ctx)
	if err == nil {
		defer s.release()
		st := &step{uid: uid}
		s.mu.Lock()
		s.remove(st, uid)
		s.mu.Unlock()
		err = s.commit(st)
	}
	if err != nil {
		return fmt.Errorf("forget pod %s: %w", uid, err)
	}
	return nil
}

// Pods answers the pods that were admitted and not forgotten, those of higher
// priority and then the older ones first. A pod that ended has the status of
// its end, and so a phase that says that it is over. What cannot be read is
// left out, with a warning for each. It blocks on the disk. The pods are the
// caller's.
func (s *Store) Pods() []*v1.Pod {
	var pods []*v1.Pod
	for _, uid := range s.UIDs() {
		s.mu.Lock()
		h := s.pods[uid]
		s.mu.Unlock()
		if h == nil || h.outline == nil {
			continue // Open has warned of it
		}
		p, err := s.pod(uid, h.ended)
		if err != nil {
			s.config.Log.Warn("a pod in the journal is not run", "podUID", uid, "error", err)
			continue
		}
		if p != nil {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(
			cmp.Compare(priority(b), priority(a)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(pod.RefOf(a).FullName(), pod.RefOf(b).FullName()),
			strings.Compare(string(a.UID), string(b.UID)),
		)
	})
	return pods
}

func priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// pod reads one pod; nil is one that was forgotten meanwhile.
func (s *Store) pod(uid types.UID, ended bool) (*v1.Pod, error) {
	value, ok, err := s.value(podKey(uid))
	if err != nil || !ok {
		return nil, err
	}
	p, err := decodePod(uid, value)
	if err != nil || !ended {
		return p, err
	}
	status, ok := s.Ended(uid)
	if !ok {
		return nil, errors.New("it has ended, and how cannot be read")
	}
	p.Status = *status
	return p, nil
}

// Ended answers how a pod ended, if Finish was told of it. It blocks on the
// disk. The status is the caller's.
func (s *Store) Ended(uid types.UID) (*v1.PodStatus, bool) {
	s.mu.Lock()
	h := s.pods[uid]
	s.mu.Unlock()
	if h == nil || !h.ended {
		return nil, false
	}
	value, ok, err := s.value(endKey(uid))
	status := &v1.PodStatus{}
	if err == nil && ok {
		err = decode(value, status)
	}
	if err == nil && !terminal(status.Phase) {
		err = errors.New("it is no end")
	}
	if err != nil {
		s.config.Log.Warn("the end of a pod cannot be read from the journal", "podUID", uid, "error", err)
		return nil, false
	}
	return status, ok
}

// HasEnded says whether Finish was told of the pod's end, also by an agent
// before this one. It does not block on the disk.
func (s *Store) HasEnded(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.pods[uid]
	return h != nil && h.ended
}

// UIDs answers the pods of which the journal has anything, sorted, those that
// cannot be read included: once the server has said which pods there are,
// Forget is for all others. It does not block on the disk.
func (s *Store) UIDs() []types.UID {
	s.mu.Lock()
	all := s.uids()
	s.mu.Unlock()
	uids := make([]types.UID, 0, len(all))
	for uid := range all {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// value reads a value. What is damaged has to be written again, though it be
// the same.
func (s *Store) value(name string) ([]byte, bool, error) {
	value, ok, err := s.journal.Read(name)
	if errors.Is(err, journal.ErrDamaged) {
		s.mu.Lock()
		if old, ok := s.stored[name]; ok {
			old.sum = sum{}
			s.stored[name] = old
		}
		s.mu.Unlock()
	}
	return value, ok, err
}

// decodePod decodes a pod and checks what paths and names are made of.
func decodePod(uid types.UID, value []byte) (*v1.Pod, error) {
	p := &v1.Pod{}
	if err := decode(value, p); err != nil {
		return nil, err
	}
	if p.UID != uid {
		return nil, fmt.Errorf("its UID is %q", p.UID)
	}
	if err := sane(p); err != nil {
		return nil, err
	}
	return p, nil
}

// sane says what is wrong with a pod that no server of Kubernetes would make.
func sane(p *v1.Pod) error {
	if err := saneUID(p.UID); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(p.Name); len(problems) > 0 {
		return fmt.Errorf("its name %q: %s", p.Name, problems[0])
	}
	if problems := validation.IsDNS1123Label(p.Namespace); len(problems) > 0 {
		return fmt.Errorf("its namespace %q: %s", p.Namespace, problems[0])
	}
	if len(p.Spec.Containers) == 0 {
		return errors.New("it has no containers")
	}
	return nil
}

// maxUID is the longest UID in bytes: it is the name of a folder.
const maxUID = 128

func saneUID(uid types.UID) error {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}
	if uid == "" || len(uid) > maxUID || strings.Trim(string(uid), ".") == "" || strings.ContainsFunc(string(uid), odd) {
		return fmt.Errorf("its UID %q cannot be the name of a folder", uid)
	}
	return nil
}
