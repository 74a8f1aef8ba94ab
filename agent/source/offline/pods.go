package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/manifest"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// Admit stores a pod and the objects that it references and that were already
// read, and returns when they are on disk. It must be called before the pod's
// first container starts, and again when the pod has changed; an unchanged pod
// causes no write. Static pods are not stored, since their manifests are on the
// node. Changes of a pod after Finish are not stored either. The pod is not
// modified.
//
// After an error the journal is unchanged. ErrFull means that there is no room:
// the pod may run nevertheless, but is not restored without network.
func (s *Store) Admit(ctx context.Context, p *v1.Pod) error {
	if pod.IsStatic(p) || pod.IsMirror(p) {
		return nil
	}
	if err := s.admit(ctx, p); err != nil {
		return fmt.Errorf("store pod %s: %w", pod.RefOf(p), err)
	}
	return nil
}

func (s *Store) admit(ctx context.Context, p *v1.Pod) error {
	if err := validatePod(p); err != nil {
		return err
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	s.mu.Lock()
	old, reads, begun := s.pods[p.UID], maps.Clone(s.recentReads), s.forgets
	s.mu.Unlock()
	if old != nil && old.ended {
		return nil
	}
	next := &podState{outline: outline(p), started: p.Status.StartTime}
	if next.started == nil && s.config.Started != nil {
		next.started = s.config.Started(p.UID)
	}
	if old != nil && old.started != nil {
		next.started = old.started // the start time never changes
	}
	next.complete = old != nil && old.complete
	value, err := encode(lasting(p, next.started))
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if size := int64(len(value)) + overhead; size > s.maxBytes {
		return fmt.Errorf("%w: pod takes %d of at most %d bytes", ErrFull, size, s.maxBytes)
	}
	st := &batch{uid: p.UID, pod: next, begun: begun}
	s.revive(st)
	s.put(st, podKey(p.UID), value)
	if err := s.putReads(st, reads); err != nil {
		return err
	}
	return s.commit(st)
}

// revive removes a terminal status that the pod had before it was forgotten, if
// that removal has not been written yet.
func (s *Store) revive(st *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ended := s.stored[endKey(st.uid)]; ended && s.dead[st.uid] > 0 {
		st.changes = append(st.changes, journal.Change{Key: endKey(st.uid)})
	}
}

// putReads adds the objects that were read before the pod was admitted. Claims
// come first, since they determine the needed volumes.
func (s *Store) putReads(st *batch, reads map[key]*read) error {
	for _, volumes := range []bool{false, true} {
		for k, r := range reads {
			if (k.kind == objects.KindVolume) != volumes || !st.pod.runs() || !k.refers(st.pod.outline) {
				continue
			}
			s.mu.Lock()
			needed := !volumes || s.isClaimed(k.name, st)
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

// Finish stores the terminal status of a pod, so that the pod does not start
// again after a restart of the agent, and returns when it is on disk. It must
// be called as soon as the status is decided, and again when the status
// changes. The pod need not be admitted or come from the API server. The status
// is stored even beyond the limit of the journal; ErrFull then means that the disk is
// full.
func (s *Store) Finish(ctx context.Context, uid types.UID, status *v1.PodStatus) error {
	if err := s.finish(ctx, uid, status); err != nil {
		return fmt.Errorf("store terminal status of pod %s: %w", uid, err)
	}
	return nil
}

func (s *Store) finish(ctx context.Context, uid types.UID, status *v1.PodStatus) error {
	if !pod.IsTerminal(status.Phase) {
		return fmt.Errorf("phase %q is not terminal", status.Phase)
	}
	if err := validateUID(uid); err != nil {
		return err
	}
	value, err := encode(status)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	next := &podState{ended: true}
	s.mu.Lock()
	if old := s.pods[uid]; old != nil {
		next.outline, next.started = old.outline, old.started
	}
	st := &batch{uid: uid, pod: next, urgent: true, begun: s.forgets}
	s.mu.Unlock()
	s.put(st, endKey(uid), value)
	return s.commit(st)
}

// Forget removes everything stored for a deleted pod, even if its value cannot
// be read, and returns when it is off the disk. After an error the next write removes
// it from the disk, unless it is the write of an Admit or Finish of the pod that begins
// after that: then the pod is stored again.
func (s *Store) Forget(ctx context.Context, uid types.UID) error {
	s.mu.Lock()
	s.forgets++
	s.dead[uid] = s.forgets
	delete(s.pods, uid)
	for k := range s.recentReads {
		if k.kind == kindToken && k.namespace == string(uid) {
			delete(s.recentReads, k)
		}
	}
	s.mu.Unlock()
	err := s.acquire(ctx)
	if err == nil {
		defer s.release()
		st := &batch{uid: uid}
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

// Pods returns the pods that were admitted and not forgotten, by descending
// priority and then from the oldest to the newest. A pod that ended has its
// terminal status and phase. Unreadable pods are omitted with a warning each.
// Pods blocks on the disk. The caller owns the returned pods.
func (s *Store) Pods() []*v1.Pod {
	var pods []*v1.Pod
	for _, uid := range s.UIDs() {
		s.mu.Lock()
		h := s.pods[uid]
		s.mu.Unlock()
		if h == nil || h.outline == nil {
			continue // Open logged a warning
		}
		p, err := s.pod(uid, h.ended)
		if err != nil {
			s.config.Log.Warn("cannot restore pod from journal", "podUID", uid, "error", err)
			continue
		}
		if p != nil {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(
			cmp.Compare(ptr.Deref(b.Spec.Priority, 0), ptr.Deref(a.Spec.Priority, 0)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(pod.RefOf(a).FullName(), pod.RefOf(b).FullName()),
			strings.Compare(string(a.UID), string(b.UID)),
		)
	})
	return pods
}

// pod reads one pod. It returns nil if the pod was forgotten meanwhile.
func (s *Store) pod(uid types.UID, ended bool) (*v1.Pod, error) {
	value, ok, err := s.value(podKey(uid))
	if err != nil || !ok {
		return nil, err
	}
	p, err := decodePod(uid, value)
	if err != nil || !ended {
		return p, err
	}
	status, err := s.terminalStatus(uid)
	if err != nil || status == nil {
		return nil, err
	}
	p.Status = *status
	return p, nil
}

// TerminalStatus returns the terminal status of a pod, if Finish stored it. It blocks on
// the disk. The caller owns the status.
func (s *Store) TerminalStatus(uid types.UID) (*v1.PodStatus, bool) {
	s.mu.Lock()
	h := s.pods[uid]
	s.mu.Unlock()
	if h == nil || !h.ended {
		return nil, false
	}
	status, err := s.terminalStatus(uid)
	if err != nil {
		s.config.Log.Warn("cannot read terminal pod status from journal", "podUID", uid, "error", err)
	}
	return status, status != nil
}

// terminalStatus reads the terminal status of a pod. It returns nil if the pod was forgotten
// meanwhile.
func (s *Store) terminalStatus(uid types.UID) (*v1.PodStatus, error) {
	value, ok, err := s.value(endKey(uid))
	if err == nil && !ok {
		return nil, nil
	}
	status := &v1.PodStatus{}
	if err == nil {
		err = decode(value, status)
	}
	if err == nil && !pod.IsTerminal(status.Phase) {
		err = errors.New("phase is not terminal")
	}
	if err != nil {
		return nil, fmt.Errorf("read terminal status: %w", err)
	}
	return status, nil
}

// IsTerminal reports whether Finish was called for the pod, also in an earlier
// process. It does not block on the disk.
func (s *Store) IsTerminal(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.pods[uid]
	return h != nil && h.ended
}

// FinishAll stores the terminal statuses, as the API server has them, of the journaled
// pods for which terminated returns true: those pods must not run again. It logs errors. It
// blocks on the disk, for up to finishTimeout if another write hangs.
func (s *Store) FinishAll(pods []*v1.Pod, terminated func(*v1.PodStatus) bool) {
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	var journaled []types.UID
	for _, p := range pods {
		if !terminated(&p.Status) {
			continue
		}
		if journaled == nil {
			journaled = s.UIDs()
		}
		if !slices.Contains(journaled, p.UID) {
			continue
		}
		if err := s.Finish(ctx, p.UID, &p.Status); err != nil {
			s.config.Log.Warn("cannot store final status of pod", "pod", pod.RefOf(p).String(), "podUID", p.UID, "effect", "it may start again after a reboot without network", "error", err)
		}
	}
}

// finishTimeout bounds the wait for other writes in one call of FinishAll.
const finishTimeout = 5 * time.Second

// UIDs returns the sorted UIDs of all pods that the journal has any value of,
// also unreadable ones. Once the API server has listed its pods, the caller
// must call Forget for all others. It does not block on the disk.
func (s *Store) UIDs() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var uids []types.UID
	for name := range s.stored {
		for _, prefix := range []string{prefixPod, prefixEnd} {
			if uid, ok := strings.CutPrefix(name, prefix); ok && s.dead[types.UID(uid)] == 0 {
				uids = append(uids, types.UID(uid))
			}
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}

// value reads a value. A damaged value is marked so that the next put writes it, even if
// unchanged, and an object so that the API server's next answer is put, even if its version is
// unchanged.
func (s *Store) value(name string) ([]byte, bool, error) {
	value, ok, err := s.journal.Read(name)
	if errors.Is(err, journal.ErrDamaged) {
		s.mu.Lock()
		if old, ok := s.stored[name]; ok {
			old.sum = sum{}
			s.stored[name] = old
		}
		if k, ok := parseKey(name); ok && s.objects[k] != nil {
			s.objects[k].version = ""
		}
		s.mu.Unlock()
	}
	return value, ok, err
}

// decodePod decodes a pod and checks its UID, name and namespace, from which paths are
// derived. It does not check the names of containers and volumes.
func decodePod(uid types.UID, value []byte) (*v1.Pod, error) {
	p := &v1.Pod{}
	if err := decode(value, p); err != nil {
		return nil, err
	}
	if p.UID != uid {
		return nil, fmt.Errorf("unexpected UID %q", p.UID)
	}
	if err := validatePod(p); err != nil {
		return nil, err
	}
	return p, nil
}

// validatePod rejects a pod with an invalid UID, name or namespace, or without containers.
func validatePod(p *v1.Pod) error {
	if err := validateUID(p.UID); err != nil {
		return err
	}
	if problems := validation.IsDNS1123Subdomain(p.Name); len(problems) > 0 {
		return fmt.Errorf("name %q: %s", p.Name, problems[0])
	}
	if problems := validation.IsDNS1123Label(p.Namespace); len(problems) > 0 {
		return fmt.Errorf("namespace %q: %s", p.Namespace, problems[0])
	}
	if len(p.Spec.Containers) == 0 {
		return errors.New("pod has no containers")
	}
	return nil
}

func validateUID(uid types.UID) error {
	if !manifest.IsUID(uid) {
		return fmt.Errorf("UID %q is not a valid directory name", uid)
	}
	return nil
}
