package offline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tinylet/tinylet/agent/store/journal"
)

// bubble runs a test in virtual time with a store that is closed at its end.
func bubble(t *testing.T, test func(t *testing.T, s *Store, api *server, log *lines)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		test(t, mustOpen(t, Config{Dir: dir, Log: log.logger()}), newServer(), log)
	})
}

// everything asks a reader for one of each kind, for the pod of everythingPod.
func everything(ctx context.Context, r *Reader, p *v1.Pod) (map[string]string, error) {
	out := make(map[string]string)
	var errs []error
	add := func(kind, value string, err error) {
		out[kind] = value
		errs = append(errs, err)
	}
	if m, err := r.ConfigMap(ctx, "ns", "map"); err != nil {
		add("map", "", err)
	} else {
		add("map", m.Data["k"], nil)
	}
	if m, err := r.Secret(ctx, "ns", "secret"); err != nil {
		add("secret", "", err)
	} else {
		add("secret", string(m.Data["k"])+string(m.Type), nil)
	}
	if m, err := r.PersistentVolumeClaim(ctx, "ns", "claim"); err != nil {
		add("claim", "", err)
	} else {
		add("claim", m.Spec.VolumeName+string(m.UID), nil)
	}
	if m, err := r.PersistentVolume(ctx, "volume"); err != nil {
		add("volume", "", err)
	} else {
		add("volume", m.Spec.StorageClassName, nil)
	}
	if m, err := r.RuntimeClass(ctx, "class"); err != nil {
		add("class", "", err)
	} else {
		add("class", m.Handler, nil)
	}
	for _, audience := range []string{"", "x/y", strings.Repeat("z", 2000)} {
		token, end, err := r.Token(ctx, p, audience, time.Hour)
		if err == nil && !end.Equal(tokenEnd) {
			err = fmt.Errorf("it ends at %v", end)
		}
		add("token "+audience, token, err)
	}
	pem, err := r.TrustBundle(ctx, bundleOf(p))
	add("bundle", pem, err)
	services, err := r.Services(ctx, "ns")
	if err == nil {
		pem = services[0].Namespace + services[0].Name + services[0].Spec.ClusterIP
	}
	add("services", pem, err)
	return out, errors.Join(errs...)
}

func bundleOf(p *v1.Pod) *v1.ClusterTrustBundleProjection {
	return p.Spec.Volumes[len(p.Spec.Volumes)-1].Projected.Sources[0].ClusterTrustBundle
}

func everythingPod(uid string) *v1.Pod {
	return aPod(uid, func(p *v1.Pod) {
		class, bundle := "class", "bundle"
		p.Spec.RuntimeClassName = &class
		p.Spec.Volumes = append(p.Spec.Volumes,
			v1.Volume{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			v1.Volume{Name: "c", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
			v1.Volume{Name: "b", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: &bundle, Path: "p"}}}}}})
	})
}

func fillServer(api *server, round string) {
	for _, name := range []string{"map", "secret", "claim", "token", "services"} {
		value := name + round
		if name == "claim" {
			value = "volume"
		}
		api.set("ns", name, round, value)
	}
	for _, name := range []string{"volume", "class", "bundle"} {
		api.set("", name, round, name+round)
	}
}

// TestEverythingComesBack reads all kinds before and after a pod is admitted,
// and without network after that.
func TestEverythingComesBack(t *testing.T) {
	for _, admittedFirst := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *Store, api *server, log *lines) {
			p := everythingPod("a")
			fillServer(api, "1")
			if admittedFirst {
				mustAdmit(t, s, p)
			}
			if _, err := everything(t.Context(), s.Reader(api), p); err != nil {
				t.Fatal(err)
			}
			if !admittedFirst {
				if got := s.journal.Keys(""); len(got) != 0 {
					t.Errorf("before the pod was admitted there are %v", got)
				}
				mustAdmit(t, s, p)
			}
			if len(s.recentReads) > 0 {
				t.Errorf("what is on the disk is in memory too: %v", s.recentReads)
			}
			fillServer(api, "2")
			want, err := everything(t.Context(), s.Reader(api), p)
			must(t, err)
			if len(want) != 10 || want["map"] != "map2" {
				t.Fatalf("read %v", want)
			}
			s = reopened(t, s)
			api.state(true, nil)
			start := time.Now()
			got, err := everything(t.Context(), s.Reader(api), p)
			must(t, err)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("without network\n%v, want\n%v", got, want)
			}
			if took := time.Since(start); took != firstContactTimeout+9*minTimeout {
				t.Errorf("it took %v", took)
			}
			if log.count("API server unreachable") != 1 {
				t.Errorf("log %s", log.text.String())
			}
			api.state(false, errLink)
			start = time.Now()
			if _, err = everything(t.Context(), s.Reader(api), p); err != nil || time.Since(start) != 0 {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			api.state(false, nil)
			fillServer(api, "3")
			if got, err = everything(t.Context(), s.Reader(api), p); err != nil || got["map"] != "map3" {
				t.Errorf("with network: %v, %v", got, err)
			}
			if log.count("API server unreachable") != 1 || log.count("resumed reading objects") != 1 {
				t.Errorf("log %s", log.text.String())
			}
			// Of a pod that has gone nothing stays for long.
			time.Sleep(retention)
			must(t, s.Forget(t.Context(), "a"))
			if got := s.journal.Keys(""); len(got) != 0 {
				t.Errorf("keys %v", got)
			}
			if s.size != 0 || len(s.objects) != 0 || len(s.pods) != 0 || len(s.dead) != 0 {
				t.Errorf("memory has %d bytes, %v, %v, %v", s.size, s.objects, s.pods, s.dead)
			}
		})
	}
}

func TestNotFoundIsAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		mustAdmit(t, s, aPod("a"))
		api.set("ns", "map", "1", "v")
		r := s.Reader(api)
		if _, err := r.ConfigMap(t.Context(), "ns", "map"); err != nil {
			t.Fatal(err)
		}
		delete(api.maps, "ns/map")
		if _, err := r.ConfigMap(t.Context(), "ns", "map"); !apierrors.IsNotFound(err) {
			t.Fatalf("error %v", err)
		}
		api.state(false, errLink)
		if _, err := r.ConfigMap(t.Context(), "ns", "map"); !errors.Is(err, errLink) {
			t.Errorf("what the server said is gone came back: %v", err)
		}
		// The pod that runs needs it at the next start.
		s = reopened(t, s)
		if m, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil || m.Data["k"] != "v" {
			t.Errorf("%v, %v", m, err)
		}
		if _, err := s.Reader(api).Secret(t.Context(), "ns", "secret"); !errors.Is(err, errLink) {
			t.Errorf("what nobody read: %v", err)
		}
		api.state(false, nil)
		api.set("ns", "map", "2", "w")
		if m, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil || m.Data["k"] != "w" {
			t.Errorf("%v, %v", m, err)
		}
		api.state(false, errLink)
		if m, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil || m.Data["k"] != "w" {
			t.Errorf("%v, %v", m, err)
		}
	})
}

// TestNobodyAsks checks that objects in the journal are not read from the API
// server until that is allowed, and that others are.
func TestNobodyAsks(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		mustAdmit(t, s, aPod("a"))
		api.set("ns", "map", "1", "v")
		api.set("ns", "other", "1", "v")
		if _, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil {
			t.Fatal(err)
		}
		s = reopened(t, s)
		may := false
		s.config.MayRead = func() bool { return may }
		api.set("ns", "map", "2", "w")
		for _, want := range []struct{ name, value string }{{"map", "v"}, {"other", "v"}} {
			if m, err := s.Reader(api).ConfigMap(t.Context(), "ns", want.name); err != nil || m.Data["k"] != want.value {
				t.Errorf("%s before the server was asked: %v, %v", want.name, m, err)
			}
		}
		may = true
		if m, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil || m.Data["k"] != "w" {
			t.Errorf("then: %v, %v", m, err)
		}
	})
}

// TestPatience checks how long reads wait in each state of the link.
func TestPatience(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		mustAdmit(t, s, aPod("a"))
		api.set("ns", "map", "1", "old")
		if _, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil {
			t.Fatal(err)
		}
		s = reopened(t, s)
		r := s.Reader(api)
		api.set("ns", "map", "2", "new")
		ask := func(what string, wantTook time.Duration, want string) {
			t.Helper()
			start := time.Now()
			m, err := r.ConfigMap(t.Context(), "ns", "map")
			if err != nil || m.Data["k"] != want || time.Since(start) != wantTook {
				t.Errorf("%s: %v, %v after %v, want %s after %v", what, m, err, time.Since(start), want, wantTook)
			}
		}
		api.state(true, nil)
		ask("at boot", firstContactTimeout, "old")
		ask("at boot again", minTimeout, "old")
		time.Sleep(fullWaitInterval)
		ask("half a minute later", firstContactTimeout, "old")
		api.state(false, apierrors.NewForbidden(schema.GroupResource{}, "x", nil))
		ask("refused", 0, "old")
		api.state(false, nil)
		api.delay = time.Second
		ask("a slow link", time.Second, "new")
		api.set("ns", "map", "3", "newer")
		ask("a slow link again", time.Second, "newer")
		ask("the same again", time.Second, "newer")
		api.state(true, nil)
		ask("when it breaks", contactedTimeout, "newer")
		ask("when it breaks again", minTimeout, "newer")
		api.state(false, nil)
		api.set("ns", "map", "4", "newest")
		ask("a glance is too short for it", minTimeout, "newer")
		time.Sleep(fullWaitInterval)
		ask("when it is back", time.Second, "newest")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := r.ConfigMap(ctx, "ns", "map"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v for who does not wait", err)
		}
	})
}

// TestPatienceFromOpen checks that late reads do not wait, unless the API
// server has responded to any component.
func TestPatienceFromOpen(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		mustAdmit(t, s, aPod("a"))
		api.set("ns", "map", "1", "old")
		if _, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil {
			t.Fatal(err)
		}
		s = reopened(t, s)
		met := false
		s.config.Contacted = func() bool { return met }
		r := s.Reader(api)
		api.set("ns", "map", "2", "new")
		ask := func(what string, wantTook time.Duration, want string) {
			t.Helper()
			start := time.Now()
			m, err := r.ConfigMap(t.Context(), "ns", "map")
			if err != nil || m.Data["k"] != want || time.Since(start) != wantTook {
				t.Errorf("%s: %v, %v after %v, want %s after %v", what, m, err, time.Since(start), want, wantTook)
			}
		}
		api.delay = time.Second
		time.Sleep(firstContactTimeout - 500*time.Millisecond)
		ask("what is left", 500*time.Millisecond, "old")
		time.Sleep(time.Second)
		ask("later", minTimeout, "old")
		met = true
		ask("a server that has answered somebody", time.Second, "new")
	})
}

// TestRollout checks that objects which the old pod used and the new pod has
// read are kept although for a while neither pod exists.
func TestRollout(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		fillServer(api, "1")
		r := s.Reader(api)
		read := func() {
			if _, err := r.ConfigMap(t.Context(), "ns", "map"); err != nil {
				t.Fatal(err)
			}
		}
		mustAdmit(t, s, aPod("a"))
		read()
		read() // by the next one
		must(t, s.Forget(t.Context(), "a"))
		mustAdmit(t, s, aPod("b"))
		if got := strings.Join(s.journal.Keys(""), " "); got != "object/ConfigMap/ns/map pod/b" {
			t.Errorf("keys %s", got)
		}
		must(t, s.Finish(t.Context(), "b", succeeded))
		time.Sleep(retention)
		mustAdmit(t, s, aPod("c", func(p *v1.Pod) { p.Namespace = "other" }))
		if got := strings.Join(s.journal.Keys(""), " "); got != "end/b pod/b pod/c" {
			t.Errorf("keys %s", got)
		}
		read()
		if len(s.recentReads) != 1 {
			t.Errorf("seen %v", s.recentReads)
		}
	})
}

// TestReadWhileItGoes checks that an object which is read while it is being
// dropped is cached again.
func TestReadWhileItGoes(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		fillServer(api, "1")
		r := s.Reader(api)
		read := func() {
			if _, err := r.ConfigMap(t.Context(), "ns", "map"); err != nil {
				t.Error(err)
			}
		}
		mustAdmit(t, s, aPod("a"))
		read()
		time.Sleep(retention)
		s.journal = &during{s.journal, read}
		must(t, s.Forget(t.Context(), "a"))
		if got := s.journal.Keys(""); len(got) != 0 {
			t.Fatalf("keys %v", got)
		}
		mustAdmit(t, s, aPod("b"))
		if got := strings.Join(s.journal.Keys(""), " "); got != "object/ConfigMap/ns/map pod/b" {
			t.Errorf("keys %s", got)
		}
	})
}

// during does something else during the first write.
type during struct {
	disk
	do func()
}

func (d *during) Write(changes ...journal.Change) error {
	if d.do != nil {
		d.do()
		d.do = nil
	}
	return d.disk.Write(changes...)
}

func TestTokensOfOnePod(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		fillServer(api, "1")
		r, a, b := s.Reader(api), aPod("a"), aPod("b")
		for _, p := range []*v1.Pod{a, b} {
			if _, _, err := r.Token(t.Context(), p, "x", time.Hour); err != nil {
				t.Fatal(err)
			}
			mustAdmit(t, s, p)
			if _, _, err := r.Token(t.Context(), p, "x", 2*time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(s.journal.Keys("token"), " "); got != "token/a/3600/x token/a/7200/x token/b/3600/x token/b/7200/x" {
			t.Errorf("keys %s", got)
		}
		if _, _, err := r.Token(t.Context(), aPod("c"), "x", time.Hour); err != nil || len(s.recentReads) != 1 {
			t.Errorf("%v, seen %v", err, s.recentReads)
		}
		must(t, s.Forget(t.Context(), "c"))
		if len(s.recentReads) > 0 {
			t.Errorf("seen %v", s.recentReads)
		}
		must(t, s.Forget(t.Context(), "a"))
		if got := strings.Join(s.journal.Keys("token"), " "); got != "token/b/3600/x token/b/7200/x" {
			t.Errorf("keys %s", got)
		}
		must(t, s.Finish(t.Context(), "b", succeeded))
		if got := s.journal.Keys("token"); len(got) != 0 {
			t.Errorf("keys %v of a pod that has ended", got)
		}
	})
}

// TestVolumesOfOthers checks that a pod with a claim does not need every
// volume.
func TestVolumesOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		fillServer(api, "1")
		api.set("", "other", "1", "other")
		r := s.Reader(api)
		for range 2 {
			if _, err := r.PersistentVolume(t.Context(), "other"); err != nil {
				t.Fatal(err)
			}
			if _, err := everything(t.Context(), r, everythingPod("a")); err != nil {
				t.Fatal(err)
			}
			mustAdmit(t, s, everythingPod("a"))
			if got := strings.Join(s.journal.Keys("object/PersistentV"), " "); got != "object/PersistentVolume//volume object/PersistentVolumeClaim/ns/claim" {
				t.Errorf("keys %s", got)
			}
		}
		time.Sleep(retention)
		api.set("ns", "claim", "2", "other") // the claim was made anew
		if _, err := r.PersistentVolumeClaim(t.Context(), "ns", "claim"); err != nil {
			t.Fatal(err)
		}
		if got := s.journal.Keys("object/PersistentVolume/"); len(got) != 0 {
			t.Errorf("keys %v", got)
		}
		if _, err := r.PersistentVolume(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
		s = reopened(t, s)
		mustAdmit(t, s, aPod("b"))
		if got := strings.Join(s.journal.Keys("object/PersistentV"), " "); got != "object/PersistentVolume//other object/PersistentVolumeClaim/ns/claim" {
			t.Errorf("keys %s", got)
		}
	})
}

func TestObjectsThatCannotBeKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, log *lines) {
		mustAdmit(t, s, aPod("a"))
		disk := fill(s)
		disk.err = errors.New("worn out")
		for round := range 6 {
			if round == 4 {
				disk.err = nil
			}
			api.set("ns", "map", fmt.Sprint(round), fmt.Sprint(round))
			if m, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil || m.Data["k"] != fmt.Sprint(round) {
				t.Errorf("%v, %v", m, err)
			}
		}
		if log.count("cannot store object") != 1 || log.count("resumed storing objects") != 1 {
			t.Errorf("log %s", log.text.String())
		}
	})
}

// TestSeenIsBounded checks that pods which are never admitted cost little.
func TestSeenIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		for i := range 3 * maxSeen {
			name := fmt.Sprintf("map-%d", i)
			api.set("ns", name, "1", "v")
			time.Sleep(time.Second)
			if _, err := s.Reader(api).ConfigMap(t.Context(), "ns", name); err != nil {
				t.Fatal(err)
			}
		}
		newest := s.recentReads[key{"ConfigMap", "ns", fmt.Sprintf("map-%d", 3*maxSeen-1)}]
		oldest := s.recentReads[key{"ConfigMap", "ns", fmt.Sprintf("map-%d", 2*maxSeen)}]
		if len(s.recentReads) != maxSeen || newest == nil || oldest == nil {
			t.Errorf("%d are remembered, the newest %v", len(s.recentReads), newest)
		}
		time.Sleep(retention)
		api.set("ns", "map", "1", "v")
		if _, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); err != nil || len(s.recentReads) != 1 {
			t.Errorf("%d are remembered, %v", len(s.recentReads), err)
		}
	})
}

// TestNotKept covers objects that were deleted before the pod was admitted,
// services that a pod does not use, and an object under another name.
func TestNotKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		fillServer(api, "1")
		r, links := s.Reader(api), false
		if _, err := r.ConfigMap(t.Context(), "ns", "map"); err != nil {
			t.Fatal(err)
		}
		delete(api.maps, "ns/map")
		if _, err := r.ConfigMap(t.Context(), "ns", "map"); !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if services, err := r.Services(t.Context(), "ns"); err != nil || services[0].Labels["l"] != "l" {
			t.Fatal(services, err)
		}
		mustAdmit(t, s, aPod("a", func(p *v1.Pod) { p.Spec.EnableServiceLinks = &links }))
		if got := strings.Join(s.journal.Keys(""), " "); got != "pod/a" {
			t.Errorf("keys %s", got)
		}
		value, err := encode(api.maps["ns/secret"])
		must(t, err)
		must(t, s.journal.Write(journal.Change{Key: "object/ConfigMap/ns/map", Value: value}))
		s = reopened(t, s)
		api.state(false, errLink)
		if m, err := s.Reader(api).ConfigMap(t.Context(), "ns", "map"); !errors.Is(err, errLink) {
			t.Errorf("%v, %v", m, err)
		}
	})
}

func TestOddNames(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, api *server, _ *lines) {
		for _, k := range [][2]string{{"ns", "a/b"}, {"n/s", "a"}, {"ns", strings.Repeat("a", 2000)}, {"ns", ""}} {
			mustAdmit(t, s, aPod("a", func(p *v1.Pod) { p.Spec.Volumes[0].ConfigMap.Name = k[1] }))
			api.set(k[0], k[1], "1", "v")
			if m, err := s.Reader(api).ConfigMap(t.Context(), k[0], k[1]); err != nil || m.Data["k"] != "v" {
				t.Errorf("%v: %v, %v", k, m, err)
			}
		}
		if got := s.journal.Keys("object"); len(got) != 0 {
			t.Errorf("keys %v", got)
		}
	})
}
