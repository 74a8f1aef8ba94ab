package authz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/server/authn"
)

type review = func(context.Context, *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error)

// newAuthorizer returns an Authorizer with the kubelet's default TTLs.
func newAuthorizer(t testing.TB, r review) *Authorizer {
	t.Helper()
	return New(Config{
		Mode: kubelet.KubeletAuthorizationModeWebhook, NodeName: "board", Review: r,
		AllowedTTL: 5 * time.Minute, DeniedTTL: 30 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
}

// guardBy returns a Guard that authenticates anonymous requests, and calls asks for each
// review.
func guardBy(t testing.TB, asks func(subresource string)) *Guard {
	t.Helper()
	who, err := authn.New(authn.Config{Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	may := newAuthorizer(t, func(_ context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		asks(r.Spec.ResourceAttributes.Subresource)
		r.Status.Allowed = true
		return r, nil
	})
	return &Guard{Authn: who, Authz: may, Log: slog.New(slog.DiscardHandler)}
}

// The subresources that the tests review.
var pods, metrics, stats = Subresources("/pods"), Subresources("/metrics"), Subresources("/stats")

var app = &authn.User{Username: "app", UID: "7", Groups: []string{"g", authn.Authenticated}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v", "w"}}}

func TestReviewHasTheWholeRequest(t *testing.T) {
	var got authorizationv1.SubjectAccessReviewSpec
	a := newAuthorizer(t, func(_ context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		got = r.Spec
		return r, nil
	})
	if yes, err := a.Allowed(t.Context(), app, "create", []string{"checkpoint"}); yes || err != nil {
		t.Errorf("%v, %v", yes, err)
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "app", UID: "7", Groups: []string{"g", authn.Authenticated}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v", "w"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Version: "v1", Resource: "nodes", Subresource: "checkpoint", Name: "board",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestFinerRightsComeFirst(t *testing.T) {
	for _, tt := range []struct {
		name    string
		has     []string
		allowed bool
		reviews []string
	}{
		{"finer", []string{"pods"}, true, []string{"app get nodes/pods"}},
		{"proxy", []string{"proxy"}, true, []string{"app get nodes/pods", "app get nodes/proxy"}},
		{"another", []string{"metrics"}, false, []string{"app get nodes/pods", "app get nodes/proxy"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := apiservertest.New()
			server.Allow("app", "get", tt.has...)
			a := newAuthorizer(t, server.AccessReview)
			for range 3 { // the second time it is known
				if yes, err := a.Allowed(t.Context(), app, "get", pods); yes != tt.allowed || err != nil {
					t.Errorf("%v, %v", yes, err)
				}
			}
			if diff := cmp.Diff(tt.reviews, server.Reviews()); diff != "" {
				t.Errorf("reviews (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecisionsHoldForTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.New()
		a := newAuthorizer(t, server.AccessReview)
		want := func(allowed bool, reviews int) {
			t.Helper()
			yes, err := a.Allowed(t.Context(), app, "get", metrics)
			if yes != allowed || err != nil || len(server.Reviews()) != reviews {
				t.Errorf("%v, %v after %d reviews; want %v after %d", yes, err, len(server.Reviews()), allowed, reviews)
			}
		}
		want(false, 1)
		server.Allow("app", "get", "metrics")
		time.Sleep(30*time.Second - time.Nanosecond)
		want(false, 1)
		time.Sleep(time.Nanosecond)
		want(true, 2)
		server.Forbid("app")
		time.Sleep(5*time.Minute - time.Nanosecond)
		want(true, 2)
		time.Sleep(time.Nanosecond)
		want(false, 3)
	})
}

// TestWhileTheServerIsAway: decisions are used until they expire, and then all requests
// are rejected.
func TestWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.New()
		server.Allow("app", "get", "proxy")
		a := newAuthorizer(t, server.AccessReview)
		want := func(subresources []string, allowed, away bool) {
			t.Helper()
			yes, err := a.Allowed(t.Context(), app, "get", subresources)
			var failed *ReviewError
			if yes != allowed || (err != nil) != away || away && (!errors.As(err, &failed) || !failed.Unavailable || !errors.Is(err, apiservertest.ErrAway)) {
				t.Errorf("%v: %v, %v; want %v", subresources, yes, err, allowed)
			}
		}
		want(proxy, true, false)
		want(metrics, false, false)
		server.Fail(apiservertest.ErrAway)
		want(proxy, true, false)
		want(pods, true, false) // by proxy, although pods cannot be asked for
		want(metrics, false, false)
		want(stats, false, true)
		time.Sleep(30 * time.Second)
		want(metrics, false, true)
		want(proxy, true, false)
		time.Sleep(4*time.Minute + 30*time.Second)
		want(proxy, false, true)
		want(pods, false, true)
		server.Fail(nil)
		want(proxy, true, false)
		want(metrics, false, false)
	})
}

func TestReviewHasALimitOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.New()
		server.Allow("app", "*", "*")
		server.SetFaults(apiservertest.Faults{Latency: time.Hour})
		a := newAuthorizer(t, server.AccessReview)
		start := time.Now()
		_, err := a.Allowed(t.Context(), app, "get", pods)
		if took := time.Since(start); took != reviewTimeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %v", err, took)
		}
		server.Fail(nil)
		if yes, err := a.Allowed(t.Context(), app, "get", pods); !yes {
			t.Errorf("a timeout was kept: %v", err)
		}
	})
}

func TestOneReviewForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.New()
		server.Allow("app", "get", "proxy")
		server.SetFaults(apiservertest.Faults{Latency: time.Second})
		a := newAuthorizer(t, server.AccessReview)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if yes, err := a.Allowed(t.Context(), app, "get", pods); !yes {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if diff := cmp.Diff([]string{"app get nodes/pods", "app get nodes/proxy"}, server.Reviews()); diff != "" {
			t.Errorf("reviews (-want +got):\n%s", diff)
		}
	})
}

// TestWhoIsWho: each of these is a different user, and none uses the cached decision of
// another.
func TestWhoIsWho(t *testing.T) {
	server := apiservertest.New()
	a := newAuthorizer(t, server.AccessReview)
	everybody := []*authn.User{
		app,
		{Username: "app2", UID: app.UID, Groups: app.Groups, Extra: app.Extra},
		{Username: "app", UID: "8", Groups: app.Groups, Extra: app.Extra},
		{Username: "app", UID: "7", Groups: []string{"g"}, Extra: app.Extra},
		{Username: "app", UID: "7", Groups: []string{"g", authn.Authenticated, "k"}, Extra: app.Extra},
		{Username: "app", UID: "7", Groups: []string{"g" + authn.Authenticated}, Extra: app.Extra},
		{Username: "app", UID: "7", Groups: app.Groups},
		{Username: "app", UID: "7", Groups: append(slices.Clone(app.Groups), "k", "2", "v", "w")},
		{Username: "app", UID: "7", Groups: app.Groups, Extra: map[string]authenticationv1.ExtraValue{"k": {"vw"}}},
		{Username: "app", UID: "7", Groups: app.Groups, Extra: map[string]authenticationv1.ExtraValue{"k": {}, "v": {"w"}}},
		{Username: "app", UID: "7", Groups: app.Groups, Extra: map[string]authenticationv1.ExtraValue{"l": {"v", "w"}}},
	}
	for range 2 {
		for _, user := range everybody {
			for _, verb := range []string{"get", ""} {
				if _, err := a.Allowed(t.Context(), user, verb, metrics); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if n := len(server.Reviews()); n != 2*len(everybody) {
		t.Errorf("%d reviews for %d users and two verbs", n, len(everybody))
	}
	same := &authn.User{Username: "app", UID: "7", Groups: slices.Clone(app.Groups), Extra: map[string]authenticationv1.ExtraValue{"k": {"v", "w"}}}
	if _, err := a.Allowed(t.Context(), same, "get", metrics); err != nil || len(server.Reviews()) != 2*len(everybody) {
		t.Errorf("the same user is asked for again, %v", err)
	}
}

func TestAway(t *testing.T) {
	nodes := schema.GroupResource{Resource: "subjectaccessreviews"}
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{apiservertest.ErrAway, true},
		{context.DeadlineExceeded, true},
		{apierrors.NewInternalError(errors.New("etcd")), true},
		{apierrors.NewServiceUnavailable("starting"), true},
		{apierrors.NewTooManyRequests("busy", 1), true},
		{&apierrors.StatusError{ErrStatus: apierrors.NewGenericServerResponse(http.StatusRequestTimeout, "create", nodes, "", "", 0, true).ErrStatus}, true},
		{apierrors.NewForbidden(nodes, "", errors.New("not a node")), false},
		{apierrors.NewUnauthorized("who"), false},
		{apierrors.NewBadRequest("what"), false},
		{errContradictory, false},
	} {
		if got := isUnavailable(fmt.Errorf("create SubjectAccessReview: %w", tt.err)); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestNonsenseAllowsNothing(t *testing.T) {
	a := newAuthorizer(t, func(_ context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		r.Status.Allowed, r.Status.Denied = true, true
		return r, nil
	})
	yes, err := a.Allowed(t.Context(), app, "get", metrics)
	if yes || err == nil || !strings.Contains(err.Error(), "nodes/metrics") {
		t.Errorf("%v, %v", yes, err)
	}
}

func TestModes(t *testing.T) {
	server := apiservertest.New()
	a := New(Config{Mode: kubelet.KubeletAuthorizationModeAlwaysAllow, Review: server.AccessReview})
	if yes, err := a.Allowed(t.Context(), app, "", proxy); !yes || len(server.Reviews()) != 0 {
		t.Errorf("%v, %v after %d reviews", yes, err, len(server.Reviews()))
	}
	for _, mode := range []kubelet.KubeletAuthorizationMode{"", "RBAC"} {
		a := New(Config{Mode: mode, NodeName: "board", Review: server.AccessReview, Log: slog.New(slog.DiscardHandler)})
		if yes, err := a.Allowed(t.Context(), app, "get", metrics); yes || err != nil {
			t.Errorf("mode %q: %v, %v", mode, yes, err)
		}
	}
}

func BenchmarkKnownRight(b *testing.B) {
	server := apiservertest.New()
	server.Allow("app", "get", "metrics")
	a := newAuthorizer(b, server.AccessReview)
	for b.Loop() {
		if yes, err := a.Allowed(b.Context(), app, "get", metrics); !yes {
			b.Fatal(err)
		}
	}
}
