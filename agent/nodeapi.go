package agent

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	goruntime "runtime"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/server"
	"github.com/tinylet/tinylet/agent/server/authn"
	"github.com/tinylet/tinylet/agent/server/authz"
	"github.com/tinylet/tinylet/agent/server/profile"
	"github.com/tinylet/tinylet/agent/server/streaming"
)

// nodeAPI is what others ask of the node over the network.
type nodeAPI struct {
	callers *authn.Authenticator
	server  *server.Server
}

func (n *nodeAPI) tasks() []task {
	return []task{
		{name: "client-ca", run: func(ctx context.Context) error { n.callers.Run(ctx); return nil }},
		{name: "node-api", run: n.server.Run},
	}
}

// assembleStreams builds the sessions into containers, which the node's API
// and the socket at the board share.
func (p *parts) assembleStreams(cfg *config.Config, rt container.Runtime, view *view, log *slog.Logger) (err error) {
	p.streams, err = streaming.New(streaming.Config{
		Runtime: rt, Find: view.found, IdleTimeout: cfg.Kubelet.StreamingConnectionIdleTimeout.Duration, Log: log,
	})
	return err
}

// assembleNodeAPI builds the API on port 10250, where there is an API server
// that judges who calls: a board alone is asked over its socket.
func (p *parts) assembleNodeAPI(cfg *config.Config, rt container.Runtime, view *view, figures *figures, log *slog.Logger) error {
	k := &cfg.Kubelet
	if p.cluster == nil || !*k.EnableServer {
		return nil
	}
	reviews := reviews{current: p.cluster.identity.Current}
	who := authn.Config{
		ClientCAFile: k.Authentication.X509.ClientCAFile, CacheTTL: k.Authentication.Webhook.CacheTTL.Duration,
		Anonymous: *k.Authentication.Anonymous.Enabled, Log: log,
	}
	if *k.Authentication.Webhook.Enabled {
		who.Review = reviews.token
	}
	callers, err := authn.New(who)
	if err != nil {
		return err
	}
	rights, err := authz.New(authz.Config{
		Mode: k.Authorization.Mode, NodeName: cfg.NodeName, Review: reviews.right,
		AllowedTTL: k.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		DeniedTTL:  k.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
		Log:        log,
	})
	if err != nil {
		return err
	}
	c := server.Config{
		Kubelet: k, GetCertificate: p.cluster.identity.Serving(), Authn: callers, Authz: rights,
		Pods: p.told, Started: view.started, Runtime: rt, ContainerLog: (&logs{runtime: rt, view: view}).containerLog, Streaming: p.streams, Profiling: profile.Handler(),
		Metrics: p.writeMetrics, ProbeMetrics: p.writeProbes,
		Log: log,
	}
	if k.EnableContentionProfiling && *k.EnableDebuggingHandlers && *k.EnableProfilingHandler {
		goruntime.SetBlockProfileRate(1) // each time that something waits
	}
	for _, check := range p.checks() {
		c.Checks = append(c.Checks, server.Check(check))
	}
	if figures != nil {
		c.Summary = figures.stats.WriteSummary
		c.ResourceMetrics, c.CadvisorMetrics = figures.stats.WriteResource, figures.stats.WriteCadvisor
	}
	s, err := server.New(c)
	if err != nil {
		return err
	}
	p.nodeAPI = &nodeAPI{callers: callers, server: s}
	return nil
}

// told are the pods with their newest statuses.
func (p *parts) told() iter.Seq2[*v1.Pod, *v1.PodStatus] {
	return func(yield func(*v1.Pod, *v1.PodStatus) bool) {
		for _, e := range p.statuses.List() {
			if !yield(e.Pod, e.Status) {
				return
			}
		}
	}
}

// reviews asks the API server who calls and what they may do, and waits for
// nothing but its answer: who calls waits too.
type reviews struct{ current func() *apiclient.Client }

// errNoCredentials is what keeps a node from asking before it has joined.
var errNoCredentials = errors.New("the node has no credentials for its API server yet")

func (r reviews) token(ctx context.Context, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	client := r.current()
	if client == nil {
		return nil, errNoCredentials
	}
	out := new(authenticationv1.TokenReview)
	return out, client.Create(ctx, apiclient.TokenReviews, "", "", "", review, out)
}

func (r reviews) right(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	client := r.current()
	if client == nil {
		return nil, errNoCredentials
	}
	out := new(authorizationv1.SubjectAccessReview)
	return out, client.Create(ctx, apiclient.SubjectAccessReviews, "", "", "", review, out)
}
