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
)

const (
	// httpTimeout bounds one request with its body, as the kubelet does.
	httpTimeout = 10 * time.Second
	// defaultPeriod is the kubelet's httpCheckFrequency.
	defaultPeriod = 20 * time.Second
	maxRedirects  = 5
)

// HTTPConfig is what an HTTP source needs.
type HTTPConfig struct {
	// URL answers a manifest, with http or https.
	URL string
	// Header goes with each request. Its values are secrets: they are never
	// logged, and never sent to another host than the URL's.
	Header http.Header
	// NodeName ends the pods' names.
	NodeName string
	// Period is the time between requests, with up to a tenth of jitter;
	// zero means 20 s.
	Period time.Duration
	// Client makes the requests; nil means one with Go's default transport.
	// Its timeout and its rule for redirects are replaced.
	Client *http.Client
	Log    *slog.Logger
	Events *event.Recorder
}

// HTTP is the source of a URL's manifests. Whatever goes wrong, the pods
// that the URL gave before stay; a list without items takes them away.
type HTTP struct {
	config HTTPConfig
	url    *url.URL
	client *http.Client
	origin manifest.Origin

	etag    string
	sum     [sha256.Size]byte
	parsed  bool // sum is that of an answer
	sent    bool // the first set is due
	whole   bool // all pods of some answer are known
	pods    []*v1.Pod
	trouble string // told last
}

// NewHTTP checks the configuration and makes the source; it asks nothing.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	if config.URL == "" || config.NodeName == "" || config.Log == nil || config.Events == nil {
		return nil, errors.New("http source: URL, node name, log and events are required")
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
		client: &http.Client{},
		origin: manifest.Origin{Source: pod.SourceHTTP, Location: config.URL, NodeName: config.NodeName},
	}
	if config.Client != nil {
		*h.client = *config.Client
	}
	h.client.Timeout = httpTimeout
	h.client.CheckRedirect = h.redirect
	return h, nil
}

// Run asks the URL at once and then once in a period, and hands the pods to
// set, first after the first good answer, then whenever they change, until
// ctx ends; its error is ctx's cause. Only one Run goes on at a
// time.
func (h *HTTP) Run(ctx context.Context, set func(context.Context, Wanted)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer h.client.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		changed, err := h.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			h.tell(err)
		default:
			h.recovered()
		}
		if changed {
			set(ctx, Wanted{Pods: h.pods, Partial: !h.whole})
		}
		timer.Reset(jittered(h.config.Period))
	}
}

// ask makes one request and says whether the pods changed.
func (h *HTTP) ask(ctx context.Context) (changed bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.config.URL, nil)
	if err != nil {
		return false, errors.New("make a request of the URL")
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
		return false, fmt.Errorf("the answer is %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	data, err := readAtMost(response.Body, nil, manifest.MaxSize)
	if err != nil {
		return false, plain(err)
	}
	return h.take(data, response.Header.Get("ETag"))
}

// take makes pods of an answer.
func (h *HTTP) take(data []byte, etag string) (changed bool, err error) {
	if len(data) == 0 {
		return false, errors.New("the answer is empty")
	}
	h.etag = etag
	sum := sha256.Sum256(data)
	if h.parsed && sum == h.sum {
		return false, nil
	}
	m := manifest.Parse(data, h.origin)
	report(h.config.Events, display(h.url), m.Problems)
	h.sum, h.parsed = sum, true
	if !h.sent && !m.Complete() && len(m.Pods) == 0 {
		return false, nil // nothing is known yet of what the URL wants
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
	request.Header.Del("Referer") // the URL with its query
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if h.url.Scheme == "https" && request.URL.Scheme != "https" {
		return fmt.Errorf("redirect from https to %s is not followed: the answer would not be authenticated", display(request.URL))
	}
	elsewhere := request.URL.Host != h.url.Host
	secret := len(h.config.Header) > 0 || h.url.User != nil
	if elsewhere && secret {
		return fmt.Errorf("redirect to %s is not followed with the headers for %s", display(request.URL), display(h.url))
	}
	return nil
}

// tell has one event for each change of what is wrong.
func (h *HTTP) tell(err error) {
	if text := err.Error(); text != h.trouble {
		h.trouble = text
		h.config.Events.Warning(pod.Ref{}, ReasonUnreadableManifest, clip(fmt.Sprintf("%s: %s; its pods stay as they are", display(h.url), text)))
	}
}

func (h *HTTP) recovered() {
	if h.trouble != "" {
		h.trouble = ""
		h.config.Log.Info("manifests can be read again", "url", display(h.url))
	}
}

// display is a URL without what may be secret in it: the user and the query.
func display(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// plain is an error without the URL, and without what differs each time,
// such as port numbers and the time of day.
func plain(err error) error {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("no whole answer within %s", httpTimeout)
	}
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		if lookup.IsNotFound {
			return fmt.Errorf("look up %s: no such host", lookup.Name)
		}
		return fmt.Errorf("look up %s: no name server answers", lookup.Name)
	}
	var certificate x509.CertificateInvalidError
	if errors.As(err, &certificate) && certificate.Reason == x509.Expired {
		return errors.New("the server's certificate has expired or is not valid yet, or the clock is wrong")
	}
	var operation *net.OpError
	if errors.As(err, &operation) {
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	}
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}
