package source

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/source/manifest"
	"github.com/tinylet/tinylet/agent/wait"
)

const (
	// httpTimeout bounds one request including its body, as in the kubelet.
	httpTimeout = 10 * time.Second
	// defaultPeriod is the kubelet's httpCheckFrequency.
	defaultPeriod = 20 * time.Second
	maxRedirects  = 5
)

// HTTPConfig configures an HTTP source. URL, NodeName, Log and Events are
// required.
type HTTPConfig struct {
	// URL is the http or https URL that serves a manifest.
	URL string
	// Header is sent with each request. Its values are secrets: they are never
	// logged, and never sent to a host other than the URL's.
	Header http.Header
	// NodeName, in lower case, is appended to the pods' names.
	NodeName string
	// Period is the time between requests, plus up to 10% of jitter; zero means
	// 20 s.
	Period time.Duration
	Log    *slog.Logger
	Events *event.Recorder
}

// HTTP is the config source for the manifests of a URL. After an error the pods of the last
// good response stay. A list without items removes them.
type HTTP struct {
	config HTTPConfig
	url    *url.URL
	client *http.Client
	origin manifest.Origin

	etag      string
	sum       [sha256.Size]byte
	parsed    bool // sum is valid
	sent      bool // Run handed over the first set, or does so next
	whole     bool // some response was parsed completely
	postponed bool // it was logged that pod cleanup waits for a complete response
	pods      []*v1.Pod
	lastError string // last reported error
}

// NewHTTP validates the configuration and returns an HTTP source. It makes no
// request.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	if config.URL == "" || config.NodeName == "" || config.Log == nil || config.Events == nil {
		return nil, errors.New("http source: URL, NodeName, Log and Events are required")
	}
	target, err := url.Parse(config.URL)
	if err != nil {
		// The parser's error quotes the URL, which may hold a password.
		return nil, errors.New("http source: the URL cannot be parsed")
	}
	if (target.Scheme != "http" && target.Scheme != "https") || target.Host == "" {
		return nil, fmt.Errorf("http source: %s is not an http or https URL with a host", display(target))
	}
	if config.Period <= 0 {
		config.Period = defaultPeriod
	}
	h := &HTTP{
		config: config,
		url:    target,
		client: &http.Client{Timeout: httpTimeout},
		origin: manifest.Origin{Source: pod.SourceHTTP, Location: config.URL, NodeName: config.NodeName},
	}
	h.client.CheckRedirect = h.redirect
	return h, nil
}

// Run requests the URL at once and then once each period, until ctx ends. It
// hands the pods to set after the first good response and then whenever they
// change. It returns ctx's cause. At most one Run may be active at a time.
func (h *HTTP) Run(ctx context.Context, set func(context.Context, PodSet)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer h.client.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		changed, err := h.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			h.reportError(err)
		default:
			h.recovered()
		}
		if changed {
			set(ctx, PodSet{Pods: h.pods, Partial: !h.whole})
		}
		timer.Reset(wait.Longer(h.config.Period))
	}
}

// poll makes one request and reports whether the pods changed.
func (h *HTTP) poll(ctx context.Context) (changed bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.config.URL, nil)
	if err != nil {
		return false, errors.New("create the HTTP request")
	}
	for key, values := range h.config.Header {
		request.Header[http.CanonicalHeaderKey(key)] = slices.Clone(values)
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	if h.etag != "" {
		request.Header.Set("If-None-Match", h.etag)
	}
	response, err := h.client.Do(request)
	if err != nil {
		return false, plain(err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotModified && h.etag != "":
		return false, nil
	case response.StatusCode != http.StatusOK:
		return false, fmt.Errorf("response status %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	data, err := readAtMost(response.Body, manifest.MaxSize)
	if err != nil {
		return false, plain(err)
	}
	return h.apply(data, response.Header.Get("ETag"))
}

// apply parses a response and updates the pods.
func (h *HTTP) apply(data []byte, etag string) (changed bool, err error) {
	if len(data) == 0 {
		return false, errors.New("empty response")
	}
	h.etag = etag
	sum := sha256.Sum256(data)
	if h.parsed && sum == h.sum {
		return false, nil
	}
	m := manifest.Parse(data, h.origin)
	reportProblems(h.config.Events, display(h.url), m.Problems)
	h.sum, h.parsed = sum, true
	if !m.Complete() && !h.whole && !h.postponed {
		h.postponed = true
		h.config.Log.Warn("postpone pod cleanup: unreadable manifests", "url", display(h.url), "remedy", "correct or delete the unreadable manifests")
	}
	if !h.sent && !m.Complete() && len(m.Pods) == 0 {
		return false, nil // the desired pods are still unknown
	}
	pods := merge(h.pods, m)
	whole := h.whole || m.Complete()
	changed = !h.sent || whole != h.whole || !slices.Equal(pods, h.pods)
	h.sent, h.whole, h.pods = true, whole, pods
	return changed, nil
}

// redirect follows redirects, but never from https to http, and to another host
// only if the request carries no headers and no user for the configured one.
func (h *HTTP) redirect(request *http.Request, via []*http.Request) error {
	request.Header.Del("Referer") // it contains the URL with its query
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if h.url.Scheme == "https" && request.URL.Scheme != "https" {
		return fmt.Errorf("refuse redirect from https to %s: the response would not be authenticated", display(request.URL))
	}
	elsewhere := request.URL.Host != h.url.Host
	secret := len(h.config.Header) > 0 || h.url.User != nil
	if elsewhere && secret {
		return fmt.Errorf("refuse redirect to %s: the request has headers or a user for %s", display(request.URL), display(h.url))
	}
	return nil
}

// reportError emits one event each time the error changes.
func (h *HTTP) reportError(err error) {
	if text := err.Error(); text != h.lastError {
		h.lastError = text
		h.config.Events.Warning(pod.Ref{}, ReasonUnreadableManifest, fmt.Sprintf("%s: %s; keeping its pods", display(h.url), text))
	}
}

func (h *HTTP) recovered() {
	if h.lastError != "" {
		h.lastError = ""
		h.config.Log.Info("resumed reading manifests from URL", "url", display(h.url))
	}
}

// display returns a URL without its potentially secret parts: the user and the
// query.
func display(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// plain returns an error without the URL, and without parts that differ each
// time, such as port numbers and the time of day.
func plain(err error) error {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("no complete response within %s", httpTimeout)
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		if lookup.IsNotFound {
			return fmt.Errorf("look up %s: no such host", lookup.Name)
		}
		return fmt.Errorf("look up %s: no name server responded", lookup.Name)
	}
	if certificate, ok := errors.AsType[x509.CertificateInvalidError](err); ok && certificate.Reason == x509.Expired {
		return errors.New("the server's certificate has expired or is not valid yet, or the clock is wrong")
	}
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return request.Err
	}
	return err
}
