package apiobjects

import (
	"context"
	"encoding/pem"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

func claimNamed(name, volume string) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: volume},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending},
	}
	if volume != "" {
		c.Status.Phase = v1.ClaimBound
	}
	return c
}

// podOf refers to one of each kind that is fetched.
func podOf(uid string) *v1.Pod {
	p := podWith(uid)
	class := "class"
	p.Spec.RuntimeClassName = &class
	p.Spec.Volumes = []v1.Volume{
		{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
		{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{}, {ClusterTrustBundle: bundleNamed("bundle")}}}}},
	}
	return p
}

func bundleNamed(name string) *v1.ClusterTrustBundleProjection {
	return &v1.ClusterTrustBundleProjection{Name: &name}
}

// stock puts one of each kind that is fetched.
func (l *lab) stock() {
	l.Put(claimNamed("claim", "volume"))
	l.Put(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume"}})
	l.Put(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Handler: "crun"})
	l.Put(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1"}})
	l.Put(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "s"}})
	l.Put(&certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "bundle"}, Spec: certificatesv1beta1.ClusterTrustBundleSpec{TrustBundle: anchor("x")},
	})
}

// reads are the reads of what is fetched.
func (l *lab) reads() []read {
	return []read{
		{"get persistentvolumeclaims/ns/claim", claimAge, func(ctx context.Context) error {
			c, err := l.PersistentVolumeClaim(ctx, "ns", "claim")
			return wrong(err, func() bool { return c.Spec.VolumeName == "volume" })
		}},
		{"get persistentvolumes/volume", claimAge, func(ctx context.Context) error {
			v, err := l.PersistentVolume(ctx, "volume")
			return wrong(err, func() bool { return v.Name == "volume" })
		}},
		{"get runtimeclasses/class", classAge, func(ctx context.Context) error {
			c, err := l.RuntimeClass(ctx, "class")
			return wrong(err, func() bool { return c.Handler == "crun" })
		}},
		{"list services/ns", serviceAge, func(ctx context.Context) error {
			all, err := l.Services(ctx, "ns")
			return wrong(err, func() bool { return len(all) == 1 && all[0].Spec.ClusterIP == "10.0.0.1" })
		}},
		{"get clustertrustbundles/bundle", bundleAge, func(ctx context.Context) error {
			pem, err := l.TrustBundle(ctx, bundleNamed("bundle"))
			return wrong(err, func() bool { return pem == anchor("x") })
		}},
	}
}

type read struct {
	call string
	age  time.Duration
	do   func(context.Context) error
}

func wrong(err error, right func() bool) error {
	if err == nil && !right() {
		return errors.New("it is another")
	}
	return err
}

func TestFetchedAndKept(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.stock()
		l.SetReferencingPods([]*v1.Pod{podOf("pod")})
		for _, r := range l.reads() {
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() {
					if err := r.do(t.Context()); err != nil {
						t.Errorf("%s: %v", r.call, err)
					}
				})
			}
			group.Wait()
			l.expect(r.call)
			time.Sleep(r.age - time.Millisecond)
			if err := r.do(t.Context()); err != nil {
				t.Errorf("%s: %v", r.call, err)
			}
			l.expect()
			time.Sleep(time.Millisecond)
			if err := r.do(t.Context()); err != nil {
				t.Errorf("%s: %v", r.call, err)
			}
			l.expect(r.call)
		}
		time.Sleep(24 * time.Hour)
		l.expect()
	})
}

func TestFetchedWithoutALink(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.stock()
		l.SetReferencingPods([]*v1.Pod{podOf("pod")})
		for _, r := range l.reads() {
			if err := r.do(t.Context()); err != nil {
				t.Errorf("%s: %v", r.call, err)
			}
		}
		l.set(func() { l.fail = errLink })
		l.made()
		time.Sleep(time.Hour)
		for range 100 {
			l.SetReferencingPods([]*v1.Pod{podOf("pod"), podOf("another")})
			for _, r := range l.reads() {
				if err := r.do(t.Context()); err != nil {
					t.Errorf("%s: %v", r.call, err)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(l.made()); n < 5*3 || n > 5*6 {
			t.Errorf("%d attempts in 10 s", n)
		}
		if lines := l.lines(); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		l.set(func() { l.fail = nil })
		time.Sleep(time.Hour)
		for _, r := range l.reads() {
			if err := r.do(t.Context()); err != nil {
				t.Errorf("%s: %v", r.call, err)
			}
		}
		if lines := l.lines(); len(lines) != 1 {
			t.Errorf("logged %q at the end", lines)
		}
		// What nobody refers to any more is forgotten, but for the services of
		// the default namespace, which every pod has.
		if _, err := l.Services(t.Context(), metav1.NamespaceDefault); err != nil {
			t.Error(err)
		}
		l.set(func() { l.fail = errLink })
		l.SetReferencingPods([]*v1.Pod{podWith("other")})
		for _, r := range l.reads() {
			if err := r.do(t.Context()); (err == nil) != (r.call == "list services/ns") {
				t.Errorf("%s: %v", r.call, err)
			}
		}
		if _, err := l.Services(t.Context(), metav1.NamespaceDefault); err != nil {
			t.Error(err)
		}
		l.SetReferencingPods(nil)
		if _, err := l.Services(t.Context(), "ns"); err == nil {
			t.Error("services of no pod's namespace are kept")
		}
		// The services are older than the new pod, which is told once.
		if lines := l.lines(); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		// An outage that nobody minds any more is over, and the next another.
		for range 2 {
			l.SetReferencingPods(nil)
			l.set(func() { l.fail = nil })
			l.SetReferencingPods([]*v1.Pod{podOf("pod")})
			time.Sleep(time.Hour)
			for range 2 {
				if err := l.reads()[0].do(t.Context()); err != nil {
					t.Error(err)
				}
				l.set(func() { l.fail = errLink })
				time.Sleep(time.Hour)
			}
			if lines := l.lines(); len(lines) != 1 {
				t.Errorf("logged %q", lines)
			}
		}
	})
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.stock()
		l.SetReferencingPods([]*v1.Pod{podOf("pod")})
		for _, r := range l.reads() {
			if err := r.do(t.Context()); err != nil {
				t.Errorf("%s: %v", r.call, err)
			}
		}
		hang := make(chan struct{})
		l.set(func() { l.hang = hang })
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := l.reads()[0].do(ctx); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		began = time.Now()
		for range 3 {
			for _, r := range l.reads() {
				if err := r.do(t.Context()); err != nil {
					t.Errorf("%s: %v", r.call, err)
				}
			}
		}
		if held := time.Since(began); held != readTimeout {
			t.Errorf("reads were held up for %v", held)
		}
		if _, err := l.RuntimeClass(ctx, "other"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v of what is not known", err)
		}
		if lines := l.lines(); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		l.set(func() { l.hang = nil })
		close(hang)
		if lines := l.lines(); len(lines) != 1 {
			t.Errorf("logged %q at the end", lines)
		}
	})
}

func TestNotThere(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		for _, r := range l.reads() {
			err := r.do(t.Context())
			if r.call != "list services/ns" && !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", r.call, err)
			}
		}
		l.made()
		l.stock()
		time.Sleep(max(recently, serviceAge))
		for _, r := range l.reads() {
			if err := r.do(t.Context()); err != nil {
				t.Errorf("%s: %v", r.call, err)
			}
		}
		// What goes is gone, however well it was known.
		l.Remove(apiclient.PersistentVolumeClaims, "ns", "claim")
		time.Sleep(claimAge)
		if _, err := l.PersistentVolumeClaim(t.Context(), "ns", "claim"); !apierrors.IsNotFound(err) {
			t.Errorf("error %v", err)
		}
		l.set(func() { l.fail = errLink })
		time.Sleep(claimAge)
		if _, err := l.PersistentVolumeClaim(t.Context(), "ns", "claim"); !errors.Is(err, errLink) {
			t.Errorf("error %v", err)
		}
	})
}

func TestUnboundClaim(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Put(claimNamed("claim", ""))
		l.SetReferencingPods([]*v1.Pod{podOf("pod")})
		if c, err := l.PersistentVolumeClaim(t.Context(), "ns", "claim"); err != nil || c.Spec.VolumeName != "" {
			t.Errorf("%v, %v", c, err)
		}
		l.Put(claimNamed("claim", "volume"))
		time.Sleep(recently)
		if c, err := l.PersistentVolumeClaim(t.Context(), "ns", "claim"); err != nil || c.Spec.VolumeName != "volume" {
			t.Errorf("%v, %v", c, err)
		}
	})
}

// notServed is what a server answers that does not know a resource.
func notServed() error {
	return apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{Resource: "x"}, "x", "404 page not found", 0, true)
}

func TestNoAPIServer(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.stock()
		l.set(func() {
			l.refuse["get persistentvolumeclaims/ns/claim"] = notServed()
			l.refuse["list configmaps/ns/a"] = notServed()
			l.refuse["get configmaps/ns/b"] = notServed()
			l.refuse["get clustertrustbundles/bundle"] = notServed()
			l.refuse["list clustertrustbundles"] = notServed()
		})
		l.SetReferencingPods([]*v1.Pod{podWith("pod", "a")})
		_, err := l.PersistentVolumeClaim(t.Context(), "ns", "claim")
		if err == nil || apierrors.IsNotFound(err) {
			t.Errorf("claim: %v", err)
		}
		for _, name := range []string{"a", "b"} {
			if got := l.text(name); !strings.Contains(got, "does not serve the resource") {
				t.Errorf("read %q", got)
			}
		}
		signer := "s"
		for _, source := range []*v1.ClusterTrustBundleProjection{bundleNamed("bundle"), {SignerName: &signer, LabelSelector: &metav1.LabelSelector{}}} {
			if _, err := l.TrustBundle(t.Context(), source); !errors.Is(err, ErrNoBundles) || apierrors.IsNotFound(err) {
				t.Errorf("bundle: %v", err)
			}
		}
	})
}

// anchor is a block of PEM that is no certificate, which nobody looks at.
func anchor(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
}

func TestTrustBundles(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		put := func(name, signer, stage, bundle string) {
			l.Put(&certificatesv1beta1.ClusterTrustBundle{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"stage": stage}},
				Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: bundle},
			})
		}
		put("own", "", "live", "comment\n"+anchor("b")+anchor("a"))
		put("s:1", "s", "live", anchor("d")+anchor("c"))
		put("s:2", "s", "live", anchor("c")+anchor("b"))
		put("s:3", "s", "test", anchor("e"))
		put("r:1", "r", "live", anchor("f"))
		signer, none := "s", "none"
		live := &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "live"}}
		for _, row := range []struct {
			name   string
			source v1.ClusterTrustBundleProjection
			want   string // the anchors
			bad    bool   // an error that is not NotFound
		}{
			{"by name", *bundleNamed("own"), "ab", false},
			{"by no name", *bundleNamed("x"), "", false},
			{"by signer and labels", v1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: live}, "bcd", false},
			{"by signer", v1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: &metav1.LabelSelector{}}, "bcde", false},
			{"by no labels", v1.ClusterTrustBundleProjection{SignerName: &signer}, "", false},
			{"by unknown signer", v1.ClusterTrustBundleProjection{SignerName: &none, LabelSelector: live}, "", false},
			{"by bad labels", v1.ClusterTrustBundleProjection{SignerName: &signer, LabelSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "x"}},
			}}, "", true},
			{"by nothing", v1.ClusterTrustBundleProjection{}, "", true},
		} {
			var want strings.Builder
			for _, name := range row.want {
				want.WriteString(anchor(string(name)))
			}
			got, err := l.TrustBundle(t.Context(), &row.source)
			if got != want.String() || (err == nil) != (row.want != "") || apierrors.IsNotFound(err) != (row.want == "" && !row.bad) {
				t.Errorf("%s: %q, %v", row.name, got, err)
			}
		}
	})
}

func FuzzAnchors(f *testing.F) {
	f.Add(anchor("a")+"x"+anchor("b"), anchor("b"))
	f.Add("-----BEGIN CERTIFICATE-----\n", "")
	f.Fuzz(func(t *testing.T, a, b string) {
		one := anchors([]string{a, b})
		if two := anchors([]string{b, a, a}); one != two {
			t.Errorf("%q, in another order %q", one, two)
		}
		if again := anchors([]string{one}); again != one {
			t.Errorf("%q becomes %q", one, again)
		}
	})
}
