package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"time"
)

// errNoServing is what a handshake fails with, in the kubelet's words
// (pkg/kubelet/kubelet.go).
var errNoServing = errors.New("no serving certificate available for the kubelet")

// serving keeps the certificate of the node's own server.
type serving struct {
	id     *Identity
	store  store
	issuer issuer
	files  *servingFiles // nil without configured files
	pair   atomic.Pointer[tls.Certificate]
	fails  atomic.Uint64
	again  chan struct{} // one slot: addresses have changed
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

// certificate answers the certificate for a handshake.
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
	// An expired certificate is not shown, as by the kubelet, but one that it
	// has signed itself: nobody checks more of it than that it is there.
	if pair == nil || (s.id.config.ServerTLSBootstrap && s.id.config.Clock.Plausible() && s.id.now().After(pair.Leaf.NotAfter)) {
		return nil, errNoServing
	}
	return pair, nil
}

// run keeps the certificate until ctx ends.
func (s *serving) run(ctx context.Context) {
	switch {
	case s.files != nil: // handshakes read them
	case s.id.config.ServerTLSBootstrap:
		s.bootstrap(ctx)
	default:
		s.selfSign(ctx)
	}
}

// bootstrap has the cluster issue the certificate.
func (s *serving) bootstrap(ctx context.Context) {
	if pair, err := s.store.load(); err == nil {
		s.pair.Store(pair)
	}
	api, err := s.api(ctx)
	if err != nil {
		return // the end
	}
	tries := newTries(s.id.config.Log)
	for ctx.Err() == nil {
		jumped := s.id.config.Clock.Jumped()
		dns, ips := s.id.config.Addresses()
		t := servingTemplate(s.id.config.NodeName, dns, ips)
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
			var refused *refusal
			if errors.As(err, &refused) {
				s.id.config.Events.Warning(node, "ServingCertificateRefused",
					"No serving certificate for this node, which will ask again: "+refused.Error())
			}
			wait, _ := tries.after(err)
			_ = pause(ctx, wait, nil, s.again) // whatever ended it, it is decided anew
		}
	}
}

// servingDue says whether a certificate is to be asked for, and if not, when
// to decide anew, zero for when addresses change. Like the kubelet, it asks
// for none without an IP address (pkg/kubelet/certificate: newGetTemplateFn).
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

func (s *serving) renew(ctx context.Context, api signing, t template) error {
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

// api waits for the node's own client.
func (s *serving) api(ctx context.Context) (signing, error) {
	select {
	case <-s.id.ready:
		s.id.mu.Lock()
		defer s.id.mu.Unlock()
		return s.id.main, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// selfSign keeps a certificate that nobody else has signed.
func (s *serving) selfSign(ctx context.Context) {
	c := &s.id.config
	backoff := newTries(c.Log).outage
	for ctx.Err() == nil {
		jumped := c.Clock.Jumped()
		plausible, now := c.Clock.Plausible(), s.id.now()
		have, err := loadSelfSigned(c.PKI)
		usable := err == nil && (!plausible || now.Before(renewal(have.Leaf, s.id.share)))
		if !usable {
			have, err = newSelfSigned(c.NodeName, now)
			if err == nil && plausible {
				// One that was made in 1970 is for this start only.
				err = saveSelfSigned(s.store.disk, c.PKI, have)
			}
		}
		if have != nil {
			s.pair.Store(have)
		}
		if err != nil {
			s.fails.Add(1)
			c.Log.Warn("no serving certificate was kept", "error", err)
			_ = pause(ctx, backoff.Next(), nil, nil) // the loop sees the end
			continue
		}
		var until time.Time
		if plausible {
			until = renewal(have.Leaf, s.id.share)
		}
		sleepUntil(ctx, s.id.now, until, jumped, s.again)
	}
}
