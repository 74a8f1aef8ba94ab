package cni

import "errors"

// task is one verb with all that was said for it.
type task struct {
	verb verb
	env  func(string) string
	*request
	fault error // of the document
	open  func(Config) (Network, error)
}

// act does what the verb asks for.
func (t *task) act() (answer []byte, err error) {
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
	return nil, environmentError(invalid("CNI_COMMAND", string(t.verb), "write ADD, DEL, CHECK, GC, STATUS or VERSION"))
}

// allowed is why the document does not allow for the verb, or nil.
func (t *task) allowed() error {
	if t.fault != nil {
		return t.fault
	}
	if err := speaks(t.verb, t.config.CNIVersion); err != nil {
		return err
	}
	d := &decoder{}
	t.config.complete(d, t.verb)
	if t.verb != gc {
		t.alone(d)
	}
	if d.fault != nil {
		return d.fault
	}
	return nil
}

// alone sees to it that no other plugin's work is asked for.
func (r *request) alone(d *decoder) {
	if r.ipam == nil {
		return
	}
	d.object(&place{key: []byte("ipam")}, r.ipam, func(at *place, value []byte) {
		d.fail(at, CodeUnsupported, `%s is not supported: addresses come from "ranges", leave ipam out`, shown(string(value)))
	})
}

func (t *task) add() ([]byte, error) {
	if err := t.allowed(); err != nil {
		return nil, err
	}
	e, fault := readEnvironment(t.env, t.verb)
	if fault != nil {
		return nil, fault
	}
	if t.prev != nil {
		return nil, configError(CodeUnsupported, "prevResult",
			shown(string(t.prev))+" is not supported: tinylet-cni makes the interface itself, so write it first in the list of plugins")
	}
	if t.config.Refuse != "" {
		return nil, &Error{Code: CodeConfig, Msg: "no container is attached to this network", Details: t.config.Refuse}
	}
	n, err := t.open(t.config)
	if err != nil {
		return nil, err
	}
	result, err := n.Setup(t.attachment(e))
	if err != nil {
		return nil, err
	}
	if err := result.sound(); err != nil {
		return nil, err
	}
	v, _ := specOf(t.config.CNIVersion)
	return appendResult(make([]byte, 0, 1024), v, &result), nil
}

// del heeds no fault of the document: what the environment names can be taken
// down without, and what cannot be taken down is there forever.
func (t *task) del() error {
	e, fault := readEnvironment(t.env, t.verb)
	if fault != nil {
		return fault
	}
	n, err := t.open(t.config)
	if err != nil {
		return err
	}
	err = n.Teardown(t.attachment(e))
	if known, ok := errors.AsType[*Error](err); ok && known.Code == CodeUnknown {
		return nil
	}
	return err
}

func (t *task) check() error {
	if err := t.allowed(); err != nil {
		return err
	}
	e, fault := readEnvironment(t.env, t.verb)
	if fault != nil {
		return fault
	}
	if t.prev == nil {
		return configError(CodeConfig, "prevResult", "is missing: hand over what ADD has answered")
	}
	prev, fault := readResult(t.prev)
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
func (t *task) gc() error {
	if err := t.allowed(); err != nil {
		return err
	}
	if !t.hasValid {
		return configError(CodeConfig, validKey, "is missing, and nothing was collected: write [] if there are none")
	}
	n, err := t.open(t.config)
	if err != nil {
		return err
	}
	return n.Collect(t.config.Name, t.valid)
}

func (t *task) status() error {
	if err := t.allowed(); err != nil {
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
	return &Error{Code: CodeUnavailable, Msg: "no container can be attached", Err: err}
}

// attachment is what the document and the environment say together. What is
// asked for in the more particular place holds.
func (t *task) attachment(e *environment) Attachment {
	return Attachment{
		ContainerID: e.id.ContainerID,
		Interface:   e.id.Interface,
		NetNS:       e.netns,
		Pod:         e.args.pod,
		Config:      t.config,
		Ports:       t.ports,
		Bandwidth:   t.bandwidth,
		IPs:         first(t.ips, t.argIPs, e.args.ips),
		MAC:         first(t.mac, t.argMAC, e.args.mac),
	}
}

func first[S ~[]E, E any](lists ...S) S {
	for _, list := range lists {
		if len(list) > 0 {
			return list
		}
	}
	return nil
}
