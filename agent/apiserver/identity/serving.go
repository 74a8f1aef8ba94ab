package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// errNoServing is the error of a TLS handshake without a certificate, in the
// kubelet's words (pkg/kubelet/kubelet.go).
var errNoServing = errors.New("no serving certificate available for the kubelet")

// serving manages the serving certificate.
type serving struct {
	id     *Identity
	store  store
	issuer issuer
	files  *servingFiles // nil if no files are configured
	pair   atomic.Pointer[tls.Certificate]
	fails  atomic.Uint64
	again  chan struct{} // one slot: the addresses have changed
}

func newServing(id *Identity) *serving {
	c := &id.config
	s := &serving{id: id, store: store{dir: c.PKI, prefix: "kubelet-server"}, again: make(chan struct{}, 1)}
	s.issuer = issuer{store: &s.store, log: c.Log, now: func() time.Time { return id.now() }}
	if c.ServingCert != "" {
		s.files = &servingFiles{cert: c.ServingCert, key: c.ServingKey, log: c.Log}
	}
	return s
}

// certificate returns the certificate for a TLS handshake. With configured files it may
// read them.
func (s *serving) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.files != nil {
		pair, err := s.files.current(s.id.now())
		if err != nil {
			return nil, err
		}
		s.pair.Store(pair)
		return pair, nil
	}
	pair := s.pair.Load()
	// An expired certificate is not presented, as in the kubelet. A self-signed one
	// is presented anyway: clients cannot verify it.
	if pair == nil || (s.id.config.ServerTLSBootstrap && s.id.config.Clock.Plausible() && s.id.now().After(pair.Leaf.NotAfter)) {
		return nil, errNoServing
	}
	return pair, nil
}

// run manages the certificate until ctx ends. With configured files it returns at once.
func (s *serving) run(ctx context.Context) {
	switch {
	case s.files != nil: // read at each handshake
	case s.id.config.ServerTLSBootstrap:
		s.bootstrap(ctx)
	default:
		s.selfSign(ctx)
	}
}

// bootstrap obtains the certificate from the cluster.
func (s *serving) bootstrap(ctx context.Context) {
	if pair, err := s.store.load(); err == nil {
		s.pair.Store(pair)
	}
	if _, err := s.id.Client(ctx); err != nil {
		return // ctx ended
	}
	api := s.id.server()
	tries := newTries(s.id.config.Log)
	for ctx.Err() == nil {
		jumped := s.id.config.Clock.Changed()
		t := servingTemplate(s.id.config.NodeName, s.id.config.HostIPs())
		until, due := servingDue(&t, s.pair.Load(), s.id.share, s.id.config.Clock.Plausible(), s.id.now())
		if !due {
			sleepUntil(ctx, s.id.now, until, jumped, s.again)
			continue
		}
		err := s.renew(ctx, api, t)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			tries.reset()
		case errors.Is(err, errInterrupted):
		default:
			s.fails.Add(1)
			s.id.recordRefusal("ServingCertificateRefused", "serving", err)
			wait, _ := tries.next(err)
			_ = pause(ctx, wait, nil, s.again) // the next iteration decides again in any case
		}
	}
}

// servingDue reports whether a certificate is to be requested. If not, until is when to
// decide again; zero means when the addresses change or the clock is set. Like the
// kubelet, it requests none without an IP address (pkg/kubelet/certificate:
// newGetTemplateFn).
func servingDue(t *template, pair *tls.Certificate, share float64, plausible bool, now time.Time) (until time.Time, due bool) {
	if len(t.ips) == 0 || !plausible {
		return time.Time{}, false
	}
	if pair == nil || !t.fits(pair.Leaf) {
		return time.Time{}, true
	}
	until = renewal(pair.Leaf, share)
	return until, !now.Before(until)
}

func (s *serving) renew(ctx context.Context, api apiclient.API, t template) error {
	pair, err := s.issuer.obtain(ctx, api, t, false, s.again)
	if err != nil {
		return err
	}
	if err := s.store.save(pair, s.id.now()); err != nil {
		return err
	}
	s.pair.Store(pair)
	return s.store.dropKey()
}

// selfSign maintains a self-signed certificate.
func (s *serving) selfSign(ctx context.Context) {
	c := &s.id.config
	backoff := newTries(c.Log).outage
	for ctx.Err() == nil {
		jumped := c.Clock.Changed()
		plausible, now := c.Clock.Plausible(), s.id.now()
		have, err := loadSelfSigned(c.PKI)
		usable := err == nil && (!plausible || now.Before(renewal(have.Leaf, s.id.share)))
		if !usable {
			have, err = newSelfSigned(c.NodeName, now)
			if err == nil && plausible {
				// While the clock is not plausible, the certificate stays in memory.
				err = saveSelfSigned(s.store.disk, c.PKI, have)
			}
		}
		if have != nil {
			s.pair.Store(have)
		}
		if err != nil {
			s.fails.Add(1)
			c.Log.Warn("cannot create or save serving certificate", "error", err)
			_ = pause(ctx, backoff.Next(), nil, nil) // the loop checks ctx
			continue
		}
		var until time.Time
		if plausible {
			until = renewal(have.Leaf, s.id.share)
		}
		sleepUntil(ctx, s.id.now, until, jumped, s.again)
	}
}
