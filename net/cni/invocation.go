package cni

import "errors"

// invocation is one verb with all that was said for it.
type invocation struct {
	verb verb
	env  func(string) string
	*request
	configErr error // of the document
	open      func(Config) (Network, error)
}

// run does what the verb asks for.
func (t *invocation) run() (answer []byte, err error) {
	switch t.verb {
	case add:
		return t.add()
	case del:
		return nil, t.del()
	case check:
		return nil, t.check()
	case gc:
		return nil, t.gc()
	case status:
		return nil, t.status()
	case version:
		return appendVersions(nil, t.config.CNIVersion), nil
	}
	return nil, environmentError(invalidVariable("CNI_COMMAND", string(t.verb), "write ADD, DEL, CHECK, GC, STATUS or VERSION"))
}

// validate is why the document does not allow for the verb, or nil.
func (t *invocation) validate() error {
	if t.configErr != nil {
		return t.configErr
	}
	if err := checkVersion(t.verb, t.config.CNIVersion); err != nil {
		return err
	}
	d := &decoder{}
	t.config.checkRequired(d, t.verb)
	if t.verb != gc {
		t.rejectIPAM(d)
	}
	if d.err != nil {
		return d.err
	}
	return nil
}

// rejectIPAM sees to it that no other plugin's work is asked for.
func (r *request) rejectIPAM(d *decoder) {
	if r.ipam == nil {
		return
	}
	d.object(&location{key: []byte("ipam")}, r.ipam, func(at *location, value []byte) {
		d.fail(at, CodeUnsupportedField, `%s is not supported: addresses come from "ranges", leave ipam out`, quoteShort(string(value)))
	})
}

func (t *invocation) add() ([]byte, error) {
	if err := t.validate(); err != nil {
		return nil, err
	}
	e, fault := readEnvironment(t.env, t.verb)
	if fault != nil {
		return nil, fault
	}
	if t.prevResult != nil {
		return nil, configError(CodeUnsupportedField, "prevResult",
			quoteShort(string(t.prevResult))+" is not supported: tinylet-cni makes the interface itself, so write it first in the list of plugins")
	}
	if t.config.Refuse != "" {
		return nil, &Error{Code: CodeInvalidConfig, Msg: "no container is attached to this network", Details: t.config.Refuse}
	}
	n, err := t.open(t.config)
	if err != nil {
		return nil, err
	}
	result, err := n.Setup(t.attachment(e))
	if err != nil {
		return nil, err
	}
	if err := result.validate(); err != nil {
		return nil, err
	}
	v, _ := parseVersion(t.config.CNIVersion)
	return appendResult(make([]byte, 0, 1024), v, &result), nil
}

// del heeds no fault of the document: what the environment names can be taken
// down without, and what cannot be taken down is there forever.
func (t *invocation) del() error {
	e, fault := readEnvironment(t.env, t.verb)
	if fault != nil {
		return fault
	}
	n, err := t.open(t.config)
	if err != nil {
		return err
	}
	err = n.Teardown(t.attachment(e))
	if known, ok := errors.AsType[*Error](err); ok && known.Code == CodeUnknownContainer {
		return nil
	}
	return err
}

func (t *invocation) check() error {
	if err := t.validate(); err != nil {
		return err
	}
	e, fault := readEnvironment(t.env, t.verb)
	if fault != nil {
		return fault
	}
	if t.prevResult == nil {
		return configError(CodeInvalidConfig, "prevResult", "is missing: hand over what ADD has answered")
	}
	prev, fault := readResult(t.prevResult)
	if fault != nil {
		return fault
	}
	if t.config.DisableCheck {
		return nil
	}
	n, err := t.open(t.config)
	if err != nil {
		return err
	}
	return n.Check(t.attachment(e), prev)
}

// gc has to be told what is valid, if only that nothing is: it would collect all
// that is there.
func (t *invocation) gc() error {
	if err := t.validate(); err != nil {
		return err
	}
	if !t.hasValid {
		return configError(CodeInvalidConfig, validKey, "is missing, and nothing was collected: write [] if there are none")
	}
	n, err := t.open(t.config)
	if err != nil {
		return err
	}
	return n.Collect(t.config.Name, t.valid)
}

func (t *invocation) status() error {
	if err := t.validate(); err != nil {
		return err
	}
	n, err := t.open(t.config)
	if err == nil {
		err = n.Status()
	}
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return &Error{Code: CodePluginNotAvailable, Msg: "no container can be attached", Err: err}
}

// attachment is what the document and the environment say together. What is
// asked for in the more particular place holds.
func (t *invocation) attachment(e *environment) Attachment {
	return Attachment{
		ContainerID: e.id.ContainerID,
		Interface:   e.id.Interface,
		NetNS:       e.netns,
		Pod:         e.args.pod,
		Config:      t.config,
		Ports:       t.ports,
		Bandwidth:   t.bandwidth,
		IPs:         firstNonEmpty(t.ips, t.argIPs, e.args.ips),
		MAC:         firstNonEmpty(t.mac, t.argMAC, e.args.mac),
	}
}

func firstNonEmpty[S ~[]E, E any](lists ...S) S {
	for _, list := range lists {
		if len(list) > 0 {
			return list
		}
	}
	return nil
}
