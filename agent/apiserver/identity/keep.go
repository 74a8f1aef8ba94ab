package identity

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// syncLoop reads the files, decides and acts, repeatedly until ctx ends.
func (id *Identity) syncLoop(ctx context.Context) {
	tries := newTries(id.config.Log)
	var rejected *Kubeconfig // the bootstrap kubeconfig that the API server rejected
	renewed := false         // in the previous step
	select {
	case <-id.again: // the files are watched
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		jumped := id.config.Clock.Changed()
		select { // the read below covers earlier changes
		case <-id.again:
		default:
		}
		f := id.readFiles()
		f.rejected = f.bootstrap != nil && rejected != nil && f.bootstrap.sameUser(rejected)
		s := decide(f, id.rules(), id.now())
		id.setProblem(s)
		if s.do == renew && renewed {
			renewed = false
			_ = pause(ctx, tries.old(), nil, id.again) // the files are read again in any case
			continue
		}
		var err error
		switch s.do {
		case use:
			if err = id.useCredentials(f); err == nil {
				id.setTrouble("")
				tries.reset()
				rejected = nil
				id.tidy(f)
				sleepUntil(ctx, id.now, s.until, jumped, id.again)
				continue
			}
		case renew:
			if err = id.useCredentials(f); err == nil {
				err = id.renew(ctx, f)
			}
		case enrol:
			id.pair.Store(f.pair)
			err = id.enrol(ctx, s.with)
		case idle:
			id.setTrouble("") // there are no attempts
			id.pair.Store(f.pair)
			sleepUntil(ctx, id.now, time.Time{}, jumped, id.again)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		renewed = s.do == renew && err == nil
		if err == nil || errors.Is(err, errInterrupted) {
			continue
		}
		id.fails.Add(1)
		wait, trouble := tries.next(err)
		id.setTrouble(trouble)
		id.recordRefusal("CertificateRefused", "client", err)
		if s.do == enrol && s.with == f.bootstrap && f.rejects(err) {
			rejected = f.bootstrap
			continue
		}
		_ = pause(ctx, wait, nil, id.again) // the files are read again in any case
	}
}

// setProblem stores the problem of a step and logs it if it is new.
func (id *Identity) setProblem(s step) {
	id.mu.Lock()
	before := id.problem
	id.problem = s.problem
	id.mu.Unlock()
	switch {
	case s.problem == before:
	case s.problem == "":
		id.config.Log.Info("client credentials are usable again")
	case s.do == enrol:
		id.config.Log.Info("requesting client certificate", "reason", s.problem)
	default:
		id.config.Events.Warning(node, "NoCredentials", "Cannot connect to the API server: "+s.problem)
	}
}

// setTrouble stores how an operator can fix the failure of the last attempt; "" means
// that there is nothing to fix.
func (id *Identity) setTrouble(trouble string) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.trouble = trouble
}

// setChanged stores what of the kubeconfig has changed since the client was created, and
// logs it if it is new; "" means nothing.
func (id *Identity) setChanged(what string) {
	id.mu.Lock()
	before := id.changed
	id.changed = what
	id.mu.Unlock()
	if what != "" && what != before {
		id.config.Log.Warn("kubeconfig changed, restart needed",
			"kubeconfig", id.config.Kubeconfig, "changed", what, "remedy", "restart tinylet to use it")
	}
}

// recordRefusal records an event for a refused request. tries logs all other errors.
func (id *Identity) recordRefusal(reason, kind string, err error) {
	var refused *csrRefusedError
	if errors.As(err, &refused) {
		id.config.Events.Warning(node, reason, "Cannot obtain a "+kind+" certificate, will retry: "+refused.Error())
	}
}

// useCredentials switches to the credentials in f. The first call creates the client.
// Later calls only report a change of the server, CA, proxy or token.
func (id *Identity) useCredentials(f *credentialFiles) error {
	id.mu.Lock()
	main, in := id.main, id.in
	id.mu.Unlock()
	before := id.pair.Swap(f.pair)
	if main != nil {
		id.setChanged(strings.Join(in.differences(f.kubeconfig), ", "))
		// A connection that was opened while there was no pair is anonymous.
		if f.pair != nil && (before == nil || !bytes.Equal(before.Certificate[0], f.pair.Certificate[0])) {
			main.Reconnect()
		}
		return nil
	}
	config := f.kubeconfig.Connection()
	if config.Certificate != nil {
		config.Certificate = id.present
	}
	if config.Insecure {
		id.config.Log.Warn("API server certificate is not verified (insecure-skip-tls-verify)",
			"kubeconfig", id.config.Kubeconfig)
	}
	main, given, err := id.open(config)
	if err != nil {
		return &kubeconfigError{id.config.Kubeconfig, err}
	}
	id.mu.Lock()
	id.main, id.given, id.in = main, given, f.kubeconfig
	id.enrolling = nil
	id.mu.Unlock()
	close(id.ready)
	return nil
}

// open creates a client that waits until the clock is plausible.
func (id *Identity) open(config apiclient.Config) (server, *apiclient.Client, error) {
	config.Ready = id.config.Clock.Ready
	config.UserAgent = id.config.UserAgent
	return id.connect(config)
}

// renew requests the next certificate with the current one.
func (id *Identity) renew(ctx context.Context, f *credentialFiles) error {
	main := id.server()
	pair, err := id.issuer.obtain(ctx, main, clientTemplate(id.config.NodeName), false, id.again)
	if err != nil {
		return err
	}
	if err := id.client.save(pair, id.now()); err != nil {
		return err
	}
	if err := id.client.dropKey(); err != nil {
		return err
	}
	id.pair.Store(pair)
	main.Reconnect()
	id.config.Events.Normal(node, "CertificateRenewed",
		"Renewed the client certificate, valid until "+pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	return nil
}

// enrol requests a certificate with the credentials of another kubeconfig. Each file is
// written after those that it refers to. The key is removed last, so that an agent that
// crashes before that finds its request again.
func (id *Identity) enrol(ctx context.Context, with *Kubeconfig) error {
	api, client, err := id.open(with.Connection())
	if err != nil {
		return &kubeconfigError{"for enrolment", err}
	}
	id.mu.Lock()
	if id.given == nil {
		id.enrolling = client
	}
	id.mu.Unlock()
	defer api.Reconnect() // closes the connection
	pair, err := id.issuer.obtain(ctx, api, clientTemplate(id.config.NodeName), true, id.again)
	if err != nil {
		return err
	}
	if err := id.client.save(pair, id.now()); err != nil {
		return err
	}
	if err := with.certified(id.client.current()).write(id.client.disk, id.config.Kubeconfig); err != nil {
		return err
	}
	if err := id.client.dropKey(); err != nil {
		return err
	}
	id.config.Events.Normal(node, "CertificateIssued",
		"Obtained a client certificate, valid until "+pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	return nil
}

// tidy removes a pending key whose certificate is already in use. Such a key is
// left only by a crash.
func (id *Identity) tidy(f *credentialFiles) {
	data, err := readFile(id.client.keyFile())
	if err != nil || f.pair == nil || f.foreign {
		return
	}
	if key, ok := decodeKey(data); ok && key.PublicKey.Equal(f.pair.Leaf.PublicKey) {
		if err := id.client.dropKey(); err != nil {
			id.config.Log.Warn("cannot remove used private key", "error", err)
		}
	}
}

// sleepUntil waits until a second after a wall clock time (zero means none), until the
// clock is set, until a notification on again, or until ctx ends.
func sleepUntil(ctx context.Context, now func() time.Time, until time.Time, jumped, again <-chan struct{}) {
	var ring <-chan time.Time
	if !until.IsZero() {
		// In this order the sum cannot overflow: Sub saturates.
		timer := time.NewTimer(max(until.Add(time.Second).Sub(now()), time.Second))
		defer timer.Stop()
		ring = timer.C
	}
	select {
	case <-ring:
	case <-jumped:
	case <-again:
	case <-ctx.Done():
	}
}
