package remote

import (
	"context"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	l.put("persistentvolumeclaims", claimNamed("claim", "volume"))
	l.put("persistentvolumes", &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume"}})
	l.put("runtimeclasses", &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Handler: "crun"})
	l.put("services", &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1"}})
	l.put("services", &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "s"}})
	l.put("clustertrustbundles", &certificatesv1beta1.ClusterTrustBundle{
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
		{"get persistentvolumes//volume", claimAge, func(ctx context.Context) error {
			v, err := l.PersistentVolume(ctx, "volume")
			return wrong(err, func() bool { return v.Name == "volume" })
		}},
		{"get runtimeclasses//class", classAge, func(ctx context.Context) error {
			c, err := l.RuntimeClass(ctx, "class")
			return wrong(err, func() bool { return c.Handler == "crun" })
		}},
		{"list services/ns", serviceAge, func(ctx context.Context) error {
			all, err := l.Services(ctx, "ns")
			return wrong(err, func() bool { return len(all) == 1 && all[0].Spec.ClusterIP == "10.0.0.1" })
		}},
		{"get clustertrustbundles//bundle", bundleAge, func(ctx context.Context) error {
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
		l.Refer([]*v1.Pod{podOf("pod")})
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
		l.Refer([]*v1.Pod{podOf("pod")})
		for _, r := range l.reads() {
			if err := r.do(t.Context()); err != nil {
				t.Errorf("%s: %v", r.call, err)
			}
		}
		l.set(func() { l.fail = errLink })
		l.made()
		time.Sleep(time.Hour)
		for range 100 {
			l.Refer([]*v1.Pod{podOf("pod"), podOf("another")})
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
		l.Refer([]*v1.Pod{podWith("other")})
		for _, r := range l.reads() {
			if err := r.do(t.Context()); (err == nil) != (r.call == "list services/ns") {
				t.Errorf("%s: %v", r.call, err)
			}
		}
		if _, err := l.Services(t.Context(), metav1.NamespaceDefault); err != nil {
			t.Error(err)
		}
		l.Refer(nil)
		if _, err := l.Services(t.Context(), "ns"); err == nil {
			t.Error("services of no pod's namespace are kept")
		}
		if lines := l.lines(); len(lines) > 0 {
			t.Errorf("what reads are answered is logged: %q", lines)
		}
		// An outage that nobody minds any more is over, and the next another.
		for range 2 {
			l.Refer(nil)
			l.set(func() { l.fail = nil })
			l.Refer([]*v1.Pod{podOf("pod")})
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
		l.Refer([]*v1.Pod{podOf("pod")})
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
		if held := time.Since(began); held != patience {
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
		l.remove("persistentvolumeclaims/ns/claim")
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
		l.put("persistentvolumeclaims", claimNamed("claim", ""))
		l.Refer([]*v1.Pod{podOf("pod")})
		if c, err := l.PersistentVolumeClaim(t.Context(), "ns", "claim"); err != nil || c.Spec.VolumeName != "" {
			t.Errorf("%v, %v", c, err)
		}
		l.put("persistentvolumeclaims", claimNamed("claim", "volume"))
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
			l.refuse["get clustertrustbundles//bundle"] = notServed()
			l.refuse["list clustertrustbundles"] = notServed()
		})
		l.Refer([]*v1.Pod{podWith("pod", "a")})
		_, err := l.PersistentVolumeClaim(t.Context(), "ns", "claim")
		if err == nil || apierrors.IsNotFound(err) {
			t.Errorf("claim: %v", err)
		}
		for _, name := range []string{"a", "b"} {
			if got := l.text(name); !strings.Contains(got, "does not serve it") {
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
			l.put("clustertrustbundles", &certificatesv1beta1.ClusterTrustBundle{
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

func TestTokens(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := podWith("pod")
		ask := func(audience string, life time.Duration) string {
			t.Helper()
			text, _, err := l.Token(t.Context(), p, audience, life)
			if err != nil {
				return err.Error()
			}
			return text
		}
		l.Refer([]*v1.Pod{p})
		text, expires, err := l.Token(t.Context(), p, "vault", time.Hour)
		if text != "token 1" || err != nil || time.Until(expires) != time.Hour {
			t.Errorf("%q until %v, %v", text, expires, err)
		}
		l.expect("create serviceaccounts/ns/account/token")
		spec := l.request.Spec
		if ref := spec.BoundObjectRef; !slices.Equal(spec.Audiences, []string{"vault"}) || *spec.ExpirationSeconds != 3600 ||
			ref.Kind != "Pod" || ref.APIVersion != "v1" || ref.Name != "pod" || ref.UID != "pod" {
			t.Errorf("asked for %+v", spec)
		}
		if got := ask("", time.Hour); got != "token 2" || l.request.Spec.Audiences != nil {
			t.Errorf("another audience: %q, %v", got, l.request.Spec.Audiences)
		}
		if got := ask("vault", 2*time.Hour); got != "token 3" {
			t.Errorf("another life: %q", got)
		}
		l.made()
		// Until a fifth of its life is left it is the same.
		time.Sleep(48*time.Minute - 11*time.Second)
		if got := ask("vault", time.Hour); got != "token 1" {
			t.Errorf("token %q early", got)
		}
		l.expect()
		time.Sleep(11 * time.Second)
		// Then the next is fetched, and no read waits for it.
		hang := make(chan struct{})
		l.set(func() { l.hang = hang })
		if got := ask("vault", time.Hour); got != "token 1" {
			t.Errorf("token %q while it is renewed", got)
		}
		synctest.Wait()
		l.set(func() { l.hang = nil })
		close(hang)
		synctest.Wait()
		if got := ask("vault", time.Hour); got != "token 4" {
			t.Errorf("token %q after it was renewed", got)
		}
		l.expect("create serviceaccounts/ns/account/token")
		// While that fails the old one counts until it ends.
		l.set(func() { l.fail = errLink })
		time.Sleep(50 * time.Minute)
		for range 9 {
			if got := ask("vault", time.Hour); got != "token 4" {
				t.Errorf("token %q without a link", got)
			}
			time.Sleep(time.Minute)
		}
		if n, lines := len(l.made()), l.lines(); n != 9 || len(lines) != 1 {
			t.Errorf("%d attempts, logged %q", n, lines)
		}
		time.Sleep(time.Minute)
		if got := ask("vault", time.Hour); !strings.Contains(got, errLink.Error()) {
			t.Errorf("token %q after its end", got)
		}
		l.set(func() { l.fail = apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "account") })
		time.Sleep(time.Minute)
		if _, _, err := l.Token(t.Context(), p, "vault", time.Hour); !apierrors.IsNotFound(err) {
			t.Errorf("error %v", err)
		}
		l.set(func() { l.fail = nil })
		time.Sleep(time.Minute)
		if got := ask("vault", time.Hour); got != "token 5" {
			t.Errorf("token %q with a link again", got)
		}
		// A pod that is gone has no token, nor has another of the name.
		l.Refer([]*v1.Pod{podWith("other")})
		l.Refer([]*v1.Pod{p})
		if got := ask("vault", time.Hour); got != "token 6" {
			t.Errorf("token %q of a pod that was gone", got)
		}
		p = p.DeepCopy()
		p.UID = "again"
		if got := ask("vault", time.Hour); got != "token 7" {
			t.Errorf("token %q of another pod", got)
		}
		p.Spec.ServiceAccountName = ""
		if got := ask("vault", time.Hour); !strings.Contains(got, "no service account") {
			t.Errorf("token %q of no account", got)
		}
	})
}

func TestTokenOfAPodThatGoesMeanwhile(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := podWith("pod")
		l.Refer([]*v1.Pod{p})
		read := func() {
			if text, _, err := l.Token(t.Context(), p, "", time.Hour); text != "token 1" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
		}
		read()
		time.Sleep(50 * time.Minute)
		hang := make(chan struct{})
		l.set(func() { l.hang = hang })
		read()
		synctest.Wait()
		l.Refer(nil)
		l.set(func() { l.fail = errLink })
		close(hang)
		if lines := l.lines(); len(lines) > 0 {
			t.Errorf("logged %q of what nobody wants", lines)
		}
	})
}

func TestTokensOfOtherLives(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := podWith("pod")
		l.Refer([]*v1.Pod{p})
		l.set(func() { l.tokenLife = 600 }) // less than asked for
		if _, expires, err := l.Token(t.Context(), p, "", time.Hour); err != nil || time.Until(expires) != 10*time.Minute {
			t.Errorf("until %v, %v", expires, err)
		}
		l.set(func() { l.fail = errLink })
		time.Sleep(10 * time.Minute)
		if _, _, err := l.Token(t.Context(), p, "", time.Hour); !errors.Is(err, errLink) {
			t.Errorf("error %v after 10 min", err)
		}
	})
	asked := time.Unix(1e9, 0)
	for _, row := range []struct{ life, first, last time.Duration }{
		{time.Hour, 48*time.Minute - 10*time.Second, 48 * time.Minute},
		{10 * time.Minute, 8*time.Minute - 10*time.Second, 8 * time.Minute},
		{365 * 24 * time.Hour, 24*time.Hour - 10*time.Second, 24 * time.Hour},
		{1<<63 - 1, 24*time.Hour - 10*time.Second, 24 * time.Hour},
		{time.Second, 750 * time.Millisecond, 800 * time.Millisecond},
		{0, 0, 0},
	} {
		seen := make(map[time.Duration]bool)
		for range 100 {
			v := lifeOf(asked, row.life)
			renew := v.fresh.Sub(asked)
			if seen[renew] = true; renew < row.first || renew > row.last || v.until != asked.Add(row.life) {
				t.Errorf("a token of %v is renewed after %v and ends after %v", row.life, renew, v.until.Sub(asked))
			}
		}
		if row.life > 0 && len(seen) < 10 {
			t.Errorf("no jitter at %v", row.life)
		}
	}
}
