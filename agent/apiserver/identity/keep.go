package identity

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// keep does one step after the other until ctx ends.
func (id *Identity) keep(ctx context.Context) {
	tries := newTries(id.config.Log)
	var rejected *Kubeconfig // the bootstrap kubeconfig that the server did not take
	renewed := false         // just now
	select {
	case <-id.again: // the files are watched
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		jumped := id.config.Clock.Jumped()
		drain(id.again) // what happened before now is seen now
		f := id.look()
		f.rejected = f.bootstrap != nil && rejected != nil && f.bootstrap.sameUser(rejected)
		s := decide(f, id.rules(), id.now())
		id.report(s)
		if s.do == renew && renewed {
			renewed = false
			_ = pause(ctx, tries.old(), nil, id.again) // whatever ended it, the files are looked at
			continue
		}
		var err error
		switch s.do {
		case use:
			if err = id.take(f); err == nil {
				id.suffer("")
				tries.reset()
				rejected = nil
				id.tidy(f)
				sleepUntil(ctx, id.now, s.until, jumped, id.again)
				continue
			}
		case renew:
			if err = id.take(f); err == nil {
				err = id.renew(ctx, f)
			}
		case enrol:
			id.pair.Store(f.pair)
			err = id.enrol(ctx, s.with)
		case idle:
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
		wait, trouble := tries.after(err)
		id.suffer(trouble)
		id.tell(err)
		if s.do == enrol && s.with == f.bootstrap && f.rejects(err) {
			rejected = f.bootstrap
			continue
		}
		_ = pause(ctx, wait, nil, id.again) // whatever ended it, the files are looked at
	}
}

// report keeps the problem, and tells of one that is new.
func (id *Identity) report(s step) {
	id.mu.Lock()
	before := id.problem
	id.problem = s.problem
	id.mu.Unlock()
	switch {
	case s.problem == before:
	case s.problem == "":
		id.config.Log.Info("the node has credentials again")
	case s.do == enrol:
		id.config.Log.Info("the node asks for a client certificate", "reason", s.problem)
	default:
		id.config.Events.Warning(node, "NoCredentials", "The node cannot speak to its API server: "+s.problem)
	}
}

// suffer keeps what the last attempt failed with.
func (id *Identity) suffer(trouble string) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.trouble = trouble
}

// tell tells the world about a refusal; all else is the tries' to tell.
func (id *Identity) tell(err error) {
	var refused *refusal
	if errors.As(err, &refused) {
		id.config.Events.Warning(node, "CertificateRefused",
			"No client certificate for this node, which will ask again: "+refused.Error())
	}
}

// take goes on with the credentials that were found.
func (id *Identity) take(f *found) error {
	id.mu.Lock()
	main, in := id.main, id.in
	id.mu.Unlock()
	before := id.pair.Swap(f.pair)
	if main != nil {
		if !in.sameServer(f.kubeconfig) || in.Token != f.kubeconfig.Token || in.TokenFile != f.kubeconfig.TokenFile {
			id.config.Log.Warn("the kubeconfig names another server or token than it did: restart to use it",
				"kubeconfig", id.config.Kubeconfig)
			id.mu.Lock()
			id.in = f.kubeconfig
			id.mu.Unlock()
		}
		if before != nil && f.pair != nil && !bytes.Equal(before.Certificate[0], f.pair.Certificate[0]) {
			main.Reconnect()
		}
		return nil
	}
	config := f.kubeconfig.Connection()
	if config.Certificate != nil {
		config.Certificate = id.present
	}
	if config.Insecure {
		id.config.Log.Warn("the kubeconfig takes any server for the API server (insecure-skip-tls-verify)",
			"kubeconfig", id.config.Kubeconfig)
	}
	main, given, err := id.open(config)
	if err != nil {
		return &unusable{id.config.Kubeconfig, err}
	}
	id.mu.Lock()
	id.main, id.given, id.in = main, given, f.kubeconfig
	id.mu.Unlock()
	close(id.ready)
	return nil
}

// open makes a client that waits for the clock.
func (id *Identity) open(config apiclient.Config) (server, *apiclient.Client, error) {
	config.Ready = id.config.Clock.Ready
	config.UserAgent = id.config.UserAgent
	return id.connect(config)
}

// renew asks for the next certificate with the one that was taken.
func (id *Identity) renew(ctx context.Context, f *found) error {
	id.mu.Lock()
	main := id.main
	id.mu.Unlock()
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
		"The client certificate was renewed until "+pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	return nil
}

// enrol asks for a certificate with other credentials. Each file is written
// when those that it names are there; the key stays until the last is, so that
// an agent that dies before finds its request again.
func (id *Identity) enrol(ctx context.Context, with *Kubeconfig) error {
	api, _, err := id.open(with.Connection())
	if err != nil {
		return &unusable{"to enrol with", err}
	}
	defer api.Reconnect() // lets go of the connection
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
		"The node has a client certificate until "+pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	return nil
}

// tidy removes a key that only an agent's death left.
func (id *Identity) tidy(f *found) {
	data, err := readFile(id.client.keyFile())
	if err != nil || f.pair == nil || f.foreign {
		return
	}
	if key, err := decodeKey(data); err == nil && key.PublicKey.Equal(f.pair.Leaf.PublicKey) {
		if err := id.client.dropKey(); err != nil {
			id.config.Log.Warn("cannot tidy up", "error", err)
		}
	}
}

// sleepUntil waits for a time of the wall clock, zero for none, or for the
// clock to be set, or for a nudge, or for the end.
func sleepUntil(ctx context.Context, now func() time.Time, until time.Time, jumped, again <-chan struct{}) {
	var ring <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(max(until.Sub(now()), 0) + time.Second)
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
