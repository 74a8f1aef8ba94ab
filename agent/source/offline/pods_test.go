package offline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/store/journal"
)

func TestPodsComeBack(t *testing.T) {
	priority := int32(5)
	old := metav1.NewTime(time.Unix(1000, 0))
	s := mustOpen(t, Config{Dir: t.TempDir()})
	mustAdmit(t, s, aPod("d"), aPod("a", func(p *v1.Pod) { p.CreationTimestamp = old }),
		aPod("c", func(p *v1.Pod) { p.Spec.Priority, p.CreationTimestamp = &priority, metav1.NewTime(time.Unix(2000, 0)) }),
		aPod("b", func(p *v1.Pod) { p.Spec.Priority, p.CreationTimestamp = &priority, old }),
		aPod("s", func(p *v1.Pod) { p.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile} }),
		aPod("m", func(p *v1.Pod) { p.Annotations = map[string]string{pod.AnnotationMirror: "x"} }))
	must(t, s.Finish(t.Context(), "a", succeeded))
	must(t, s.Forget(t.Context(), "d"))
	mustAdmit(t, s, aPod("e", func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Unix(3000, 0)) }))
	for range 2 {
		pods := s.Pods()
		if got := uidsOf(pods); got != "b c a e" {
			t.Fatalf("pods %s", got)
		}
		if got := pods[2].Status; got.Phase != v1.PodSucceeded || got.Message != "done" {
			t.Errorf("status of the one that ended: %+v", got)
		}
		want := aPod("e", func(p *v1.Pod) {
			p.CreationTimestamp = metav1.NewTime(time.Unix(3000, 0))
			p.ManagedFields, p.ResourceVersion, p.Status = nil, "", v1.PodStatus{}
		})
		if diff := cmp.Diff(want, pods[3]); diff != "" {
			t.Errorf("pod (-want +got):\n%s", diff)
		}
		if status, ok := s.TerminalStatus("a"); !ok || status.Phase != v1.PodSucceeded {
			t.Errorf("end %v, %v", status, ok)
		}
		if _, ok := s.TerminalStatus("b"); ok {
			t.Error("b has not ended")
		}
		if got := s.UIDs(); len(got) != 4 {
			t.Errorf("UIDs %v", got)
		}
		if s.Newest().IsZero() {
			t.Error("no time of the newest write")
		}
		s = reopened(t, s)
	}
}

func TestUnchangedIsNotWritten(t *testing.T) {
	s := mustOpen(t, Config{Dir: t.TempDir()})
	api := newServer()
	api.set("ns", "map", "1", "v")
	r := s.Reader(api)
	if _, err := r.ConfigMap(t.Context(), "ns", "map"); err != nil {
		t.Fatal(err)
	}
	mustAdmit(t, s, aPod("a"))
	must(t, s.Finish(t.Context(), "b", succeeded))
	again := func() {
		for range 2 {
			// The server's status, and who applied what, change all the time.
			mustAdmit(t, s, aPod("a", func(p *v1.Pod) {
				p.ResourceVersion, p.ManagedFields, p.Status.Phase = "99", nil, v1.PodPending
			}))
			must(t, s.Finish(t.Context(), "b", succeeded))
			must(t, s.Forget(t.Context(), "nobody"))
			if _, err := r.ConfigMap(t.Context(), "ns", "map"); err != nil {
				t.Fatal(err)
			}
		}
	}
	unchanged(t, s, again)
	s = reopened(t, s)
	r = s.Reader(api)
	unchanged(t, s, again)
	api.set("ns", "map", "2", "v") // an annotation, say
	unchanged(t, s, again)
	before := content(t, s.config.Dir)
	mustAdmit(t, s, aPod("a", func(p *v1.Pod) { p.Labels["app"] = "b" }))
	if len(content(t, s.config.Dir)) == len(before) {
		t.Error("a change was not written")
	}
}

func TestStatusThatIsKept(t *testing.T) {
	now, later := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(1001, 0))
	gated := func(p *v1.Pod) {
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "gate"}}
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: "gate", Status: v1.ConditionTrue}}
	}
	start := func(at *metav1.Time) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.StartTime = at } }
	var told *metav1.Time
	s := mustOpen(t, Config{Dir: t.TempDir(), Started: func(types.UID) *metav1.Time { return told }})
	for _, row := range []struct {
		name string
		told *metav1.Time
		pods []*v1.Pod
		want v1.PodStatus
	}{
		{"nothing", nil, []*v1.Pod{aPod("a")}, v1.PodStatus{}},
		{"start of its own", nil, []*v1.Pod{aPod("a", start(&now))}, v1.PodStatus{StartTime: &now}},
		{"start that was told", &now, []*v1.Pod{aPod("a")}, v1.PodStatus{StartTime: &now}},
		{"start stays", &later, []*v1.Pod{aPod("a", start(&now)), aPod("a"), aPod("a", start(&later))}, v1.PodStatus{StartTime: &now}},
		{"gates", nil, []*v1.Pod{aPod("a", gated)}, v1.PodStatus{Conditions: []v1.PodCondition{{Type: "gate", Status: v1.ConditionTrue}}}},
		{"over", nil, []*v1.Pod{aPod("a", func(p *v1.Pod) { p.Status = *succeeded })}, *succeeded},
	} {
		t.Run(row.name, func(t *testing.T) {
			told = row.told
			mustAdmit(t, s, row.pods...)
			got := s.Pods()[0].Status
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			must(t, s.Forget(t.Context(), "a"))
		})
	}
}

func TestOddPods(t *testing.T) {
	s := mustOpen(t, Config{Dir: t.TempDir()})
	for name, p := range map[string]*v1.Pod{
		"no UID":        aPod(""),
		"UID of a path": aPod("x", func(p *v1.Pod) { p.UID = "../x" }),
		"UID of dots":   aPod("x", func(p *v1.Pod) { p.UID = ".." }),
		"long UID":      aPod("x", func(p *v1.Pod) { p.UID = types.UID(strings.Repeat("x", 129)) }),
		"name":          aPod("x", func(p *v1.Pod) { p.Name = "a/b" }),
		"namespace":     aPod("x", func(p *v1.Pod) { p.Namespace = "" }),
		"containers":    aPod("x", func(p *v1.Pod) { p.Spec.Containers = nil }),
	} {
		if err := s.Admit(t.Context(), p); err == nil {
			t.Errorf("%s: admitted", name)
		}
	}
	if err := s.Finish(t.Context(), "a", &v1.PodStatus{Phase: v1.PodRunning}); err == nil {
		t.Error("Running is no end")
	}
	if err := s.Finish(t.Context(), "a/b", succeeded); err == nil {
		t.Error("an end of a path")
	}
	if s.UIDs(); len(s.UIDs()) != 0 {
		t.Errorf("there are %v", s.UIDs())
	}
}

func TestNoRoom(t *testing.T) {
	big := func(uid string, size int) *v1.Pod {
		return aPod(uid, func(p *v1.Pod) {
			p.Spec.Volumes, p.Annotations = nil, map[string]string{"x": strings.Repeat("x", size)}
		})
	}
	api := newServer()
	api.set("ns", "map", "1", strings.Repeat("v", 4000))
	s := mustOpen(t, Config{Dir: t.TempDir()})
	s.maxBytes = 10000
	if _, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil {
		t.Fatal(err)
	}
	mustAdmit(t, s, aPod("a"))
	for name, p := range map[string]*v1.Pod{"alone": big("b", 11000), "with the others": big("b", 6000)} {
		unchanged(t, s, func() {
			if err := s.Admit(t.Context(), p); !errors.Is(err, ErrFull) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	must(t, s.Finish(t.Context(), "c", &v1.PodStatus{Phase: v1.PodFailed, Message: strings.Repeat("m", 6000)}))
	must(t, s.Forget(t.Context(), "c"))
	must(t, s.Forget(t.Context(), "a"))
	mustAdmit(t, s, big("b", 6000)) // the ConfigMap goes, though it was read a moment ago
	if got := uidsOf(reopened(t, s).Pods()); got != "b" {
		t.Errorf("pods %q", got)
	}
}

func TestFullDisk(t *testing.T) {
	for _, cause := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS} {
		s := mustOpen(t, Config{Dir: t.TempDir()})
		mustAdmit(t, s, aPod("a"), aPod("b"))
		disk := fill(s)
		disk.err = cause
		err := s.Admit(t.Context(), aPod("c"))
		if !errors.Is(err, cause) || errors.Is(err, ErrFull) == errors.Is(cause, unix.EROFS) || !strings.Contains(err.Error(), "store pod ns/pod-c: ") {
			t.Errorf("error %v", err)
		}
		if err := s.Forget(t.Context(), "a"); !errors.Is(err, cause) {
			t.Errorf("error %v", err)
		}
		if err := s.Finish(t.Context(), "b", succeeded); !errors.Is(err, cause) {
			t.Errorf("error %v", err)
		}
		if got := uidsOf(s.Pods()); got != "b" {
			t.Errorf("pods %q", got)
		}
		disk.err = nil
		mustAdmit(t, s, aPod("d"))
		s.journal = disk.disk
		if got := uidsOf(reopened(t, s).Pods()); got != "b d" {
			t.Errorf("pods %q after there was room again", got)
		}
	}
}

func TestForgottenThatComesAgain(t *testing.T) {
	s := mustOpen(t, Config{Dir: t.TempDir()})
	mustAdmit(t, s, aPod("a"))
	must(t, s.Finish(t.Context(), "a", succeeded))
	disk := fill(s)
	disk.err = unix.ENOSPC
	if err := s.Forget(t.Context(), "a"); err == nil {
		t.Fatal("no error")
	}
	disk.err = nil
	mustAdmit(t, s, aPod("a"))
	s.journal = disk.disk
	for range 2 {
		if pods := s.Pods(); len(pods) != 1 || pods[0].Status.Phase != "" {
			t.Fatalf("pods %v", pods)
		}
		if _, ok := s.TerminalStatus("a"); ok {
			t.Error("it has ended")
		}
		s = reopened(t, s)
	}
}

// TestForgottenWhileItIsStored has a Forget that gives up while the pod is being written.
func TestForgottenWhileItIsStored(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, do := range map[string]func(*Store) error{
		"admit":  func(s *Store) error { return s.Admit(t.Context(), aPod("a")) },
		"finish": func(s *Store) error { return s.Finish(t.Context(), "a", succeeded) },
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, Config{Dir: t.TempDir()})
			s.journal = &during{s.journal, func() {
				if err := s.Forget(ended, "a"); err == nil {
					t.Error("forgot the pod without the write token")
				}
			}}
			must(t, do(s))
			if got := s.UIDs(); len(got) != 0 || s.IsTerminal("a") {
				t.Errorf("pods %v after a was forgotten", got)
			}
			mustAdmit(t, s, aPod("b"))
			if got := strings.Join(s.journal.Keys(""), " "); got != "pod/b" {
				t.Errorf("keys %s", got)
			}
		})
	}
}

// endless is a disk on which no terminal status is found.
type endless struct{ disk }

func (e endless) Read(key string) ([]byte, bool, error) {
	if strings.HasPrefix(key, prefixEnd) {
		return nil, false, nil
	}
	return e.disk.Read(key)
}

// TestForgottenWhileItIsRead has a terminal status that is removed before it is read.
func TestForgottenWhileItIsRead(t *testing.T) {
	log := &lines{}
	s := mustOpen(t, Config{Dir: t.TempDir(), Log: log.logger()})
	mustAdmit(t, s, aPod("a"))
	must(t, s.Finish(t.Context(), "a", succeeded))
	s.journal = endless{s.journal}
	if status, ok := s.TerminalStatus("a"); ok || status != nil {
		t.Errorf("status %v", status)
	}
	if got := uidsOf(s.Pods()); got != "" || log.text.Len() > 0 {
		t.Errorf("pods %q, log %s", got, log.text.String())
	}
}

// TestForgottenBeforeItsTokenIsStored checks that a token whose pod is forgotten while the
// token waits for other writes does not reach the disk.
func TestForgottenBeforeItsTokenIsStored(t *testing.T) {
	s := mustOpen(t, Config{Dir: t.TempDir()})
	mustAdmit(t, s, aPod("a"))
	must(t, s.Forget(t.Context(), "a"))
	must(t, s.writeAnswer(t.Context(), tokenKey("a", "x", time.Hour), &read{message: newMessage(kindToken), at: time.Now()}))
	if got := s.journal.Keys(""); len(got) != 0 {
		t.Errorf("keys %v", got)
	}
}

// TestValuesOfOthers puts values into the journal that this version cannot use.
func TestValuesOfOthers(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Config{Dir: dir})
	api := newServer()
	api.set("ns", "map", "1", "v")
	if _, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil {
		t.Fatal(err)
	}
	mustAdmit(t, s, aPod("a"))
	value, err := encode(lasting(aPod("a"), nil))
	must(t, err)
	insane, err := encode(aPod("insane", func(p *v1.Pod) { p.Name = "a/b" }))
	must(t, err)
	must(t, s.journal.Write(
		journal.Change{Key: "pod/later", Value: append([]byte{2}, value[1:]...)},
		journal.Change{Key: "pod/empty", Value: []byte{}},
		journal.Change{Key: "pod/cut", Value: value[:len(value)-3]},
		journal.Change{Key: "pod/renamed", Value: value},
		journal.Change{Key: "pod/insane", Value: insane},
		journal.Change{Key: "end/later", Value: []byte{2}},
		journal.Change{Key: "object/Later/ns/x", Value: []byte{1}},
		journal.Change{Key: "something", Value: []byte{1}},
	))
	log := &lines{}
	must(t, s.Close())
	s = mustOpen(t, Config{Dir: dir, Log: log.logger()})
	if got := log.count("cannot use value in pod journal"); got != 8 {
		t.Errorf("%d warnings: %s", got, log.text.String())
	}
	if got := uidsOf(s.Pods()); got != "a" {
		t.Errorf("pods %q", got)
	}
	must(t, s.Forget(t.Context(), "a"))
	mustAdmit(t, s, aPod("b"))
	if got := strings.Join(s.journal.Keys(""), " "); got != "end/later object/ConfigMap/ns/map object/Later/ns/x pod/b pod/cut pod/empty pod/insane pod/later pod/renamed something" {
		t.Errorf("keys %s", got)
	}
	for _, uid := range s.UIDs() {
		must(t, s.Forget(t.Context(), uid))
	}
	if got := strings.Join(s.journal.Keys(""), " "); got != "object/ConfigMap/ns/map object/Later/ns/x something" {
		t.Errorf("keys %s", got)
	}
}

// worn is a disk that has lost values until they are written again.
type worn struct {
	disk
	lost map[string]bool
}

func (w *worn) Read(key string) ([]byte, bool, error) {
	if w.lost[key] {
		return nil, false, journal.ErrDamaged
	}
	return w.disk.Read(key)
}

func (w *worn) Write(changes ...journal.Change) error {
	for _, c := range changes {
		delete(w.lost, c.Key)
	}
	return w.disk.Write(changes...)
}

func TestDamagedValues(t *testing.T) {
	api := newServer()
	api.set("ns", "map", "1", "v")
	s := mustOpen(t, Config{Dir: t.TempDir()})
	mustAdmit(t, s, aPod("a"), aPod("b"), aPod("c"))
	if _, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil {
		t.Fatal(err)
	}
	must(t, s.Finish(t.Context(), "b", succeeded))
	for _, atOpen := range []bool{true, false} {
		log, disk := &lines{}, &worn{disk: s.journal, lost: make(map[string]bool)}
		lose := func() {
			for _, name := range []string{"pod/a", "end/b", "object/ConfigMap/ns/map"} {
				disk.lost[name] = true
			}
		}
		if atOpen {
			lose()
		}
		c := s.config
		c.Log = log.logger()
		next, err := newStore(c, disk)
		must(t, err)
		lose()
		if got := uidsOf(next.Pods()); got != "c" {
			t.Errorf("pods %q", got)
		}
		if _, ok := next.TerminalStatus("b"); ok {
			t.Error("a lost end is told")
		}
		if got := log.count("WARN"); got < 3 {
			t.Errorf("log %s", log.text.String())
		}
		api.state(false, errLink)
		if _, err := next.Reader(api).ConfigMap(t.Context(), "ns", "map"); !errors.Is(err, errLink) {
			t.Errorf("a lost object: %v", err)
		}
		api.state(false, nil)
		api.set("ns", "map", "2", "v")
		if _, err := next.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil {
			t.Error(err)
		}
		mustAdmit(t, next, aPod("a"))
		must(t, next.Finish(t.Context(), "b", succeeded))
		if got := uidsOf(next.Pods()); got != "a b c" || len(disk.lost) > 0 {
			t.Errorf("pods %q after they were written again, lost %v", got, disk.lost)
		}
	}
}

// TestDamagedObjectIsWrittenAgain has an object that is damaged after the API server has
// returned it, and whose version does not change.
func TestDamagedObjectIsWrittenAgain(t *testing.T) {
	api := newServer()
	api.set("ns", "map", "1", "v")
	s := mustOpen(t, Config{Dir: t.TempDir()})
	mustAdmit(t, s, aPod("a"))
	r := s.Reader(api)
	if _, err := r.ConfigMap(t.Context(), "ns", "map"); err != nil {
		t.Fatal(err)
	}
	disk := &worn{disk: s.journal, lost: map[string]bool{"object/ConfigMap/ns/map": true}}
	s.journal = disk
	api.state(false, errLink)
	if _, err := r.ConfigMap(t.Context(), "ns", "map"); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("a lost object: %v", err)
	}
	api.state(false, nil)
	if _, err := r.ConfigMap(t.Context(), "ns", "map"); err != nil || len(disk.lost) > 0 {
		t.Errorf("error %v, lost %v", err, disk.lost)
	}
}

// TestReplacesWhatItCannotUse checks that a pod from the API server replaces
// its value of a later version.
func TestReplacesWhatItCannotUse(t *testing.T) {
	s := mustOpen(t, Config{Dir: t.TempDir()})
	must(t, s.journal.Write(journal.Change{Key: "pod/a", Value: []byte{2}}, journal.Change{Key: "object/Secret/ns/other", Value: []byte{1}}))
	s = reopened(t, s)
	mustAdmit(t, s, aPod("a"))
	mustAdmit(t, s, aPod("b"))
	if got := strings.Join(s.journal.Keys(""), " "); got != "pod/a pod/b" {
		t.Errorf("keys %s", got)
	}
}

// TestFinishAllBehindAWriteThatHangs checks that several pods do not wait one after the other.
func TestFinishAllBehindAWriteThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, _ *server, log *lines) {
		pods := []*v1.Pod{aPod("a"), aPod("b"), aPod("c")}
		mustAdmit(t, s, pods...)
		for _, p := range pods {
			p.Status = *succeeded
		}
		must(t, s.acquire(t.Context()))
		begin := time.Now()
		s.FinishAll(pods, func(*v1.PodStatus) bool { return true })
		s.release()
		if took := time.Since(begin); took > finishTimeout || log.count("cannot store final status of pod") != 3 {
			t.Errorf("took %v, log %s", took, log.text.String())
		}
	})
}

func TestEndedContext(t *testing.T) {
	s := mustOpen(t, Config{Dir: t.TempDir()})
	mustAdmit(t, s, aPod("a"))
	cause := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	must(t, s.acquire(t.Context()))
	for name, do := range map[string]func() error{
		"admit":  func() error { return s.Admit(ctx, aPod("b")) },
		"finish": func() error { return s.Finish(ctx, "a", succeeded) },
		"forget": func() error { return s.Forget(ctx, "a") },
	} {
		if err := do(); !errors.Is(err, cause) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.release()
	if got := uidsOf(s.Pods()); got != "" {
		t.Errorf("pods %q, a was forgotten", got)
	}
	mustAdmit(t, s, aPod("c"))
	if got := uidsOf(reopened(t, s).Pods()); got != "c" {
		t.Errorf("pods %q", got)
	}
}
