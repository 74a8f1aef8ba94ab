package apiobjects

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
)

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
		l.SetReferencingPods([]*v1.Pod{p})
		text, expires, err := l.Token(t.Context(), p, "vault", time.Hour)
		if text != "token 1" || err != nil || time.Until(expires) != time.Hour {
			t.Errorf("%q until %v, %v", text, expires, err)
		}
		l.expect("create serviceaccounts/ns/account/token")
		spec := l.request().Spec
		if ref := spec.BoundObjectRef; !slices.Equal(spec.Audiences, []string{"vault"}) || *spec.ExpirationSeconds != 3600 ||
			ref.Kind != "Pod" || ref.APIVersion != "v1" || ref.Name != "pod" || ref.UID != "pod" {
			t.Errorf("asked for %+v", spec)
		}
		if got := ask("", time.Hour); got != "token 2" || l.request().Spec.Audiences != nil {
			t.Errorf("another audience: %q, %v", got, l.request().Spec.Audiences)
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
		l.SetReferencingPods([]*v1.Pod{podWith("other")})
		l.SetReferencingPods([]*v1.Pod{p})
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
		l.SetReferencingPods([]*v1.Pod{p})
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
		l.SetReferencingPods(nil)
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
		l.SetReferencingPods([]*v1.Pod{p})
		l.SetFaults(apiservertest.Faults{Before: l.before, Admit: func(o runtime.Object) {
			*o.(*authenticationv1.TokenRequest).Spec.ExpirationSeconds = 600 // less than asked for
		}})
		if _, expires, err := l.Token(t.Context(), p, "", time.Hour); err != nil || time.Until(expires) != 10*time.Minute {
			t.Errorf("until %v, %v", expires, err)
		}
		l.set(func() { l.fail = errLink })
		time.Sleep(10 * time.Minute)
		if _, _, err := l.Token(t.Context(), p, "", time.Hour); !errors.Is(err, errLink) {
			t.Errorf("error %v after 10 min", err)
		}
	})
	inLab(t, func(t *testing.T, l *lab) {
		p := podWith("pod")
		l.SetReferencingPods([]*v1.Pod{p})
		if text, _, err := l.Token(t.Context(), p, "", -100*time.Second); err == nil || !strings.Contains(err.Error(), "lifetime of -100 s") {
			t.Errorf("token %q of no lifetime, error %v", text, err)
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
			v := tokenValidity(asked, row.life)
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
