package cni

// invocation is one call of the plugin with its input.
type invocation struct {
	verb verb
	env  func(string) string
	*request
	configErr error // of the network configuration
	open      func(Config) (Network, error)
}

// run executes a verb other than VERSION and returns the output.
func (i *invocation) run() (out []byte, err error) {
	switch i.verb {
	case add:
		return i.add()
	case del:
		return nil, i.del()
	case check:
		return nil, i.check()
	case gc:
		return nil, i.gc()
	default:
		return nil, i.status()
	}
}

// validate returns an error if the network configuration does not permit the verb.
func (i *invocation) validate() error {
	if i.configErr != nil {
		return i.configErr
	}
	if err := checkVersion(i.verb, i.config.CNIVersion); err != nil {
		return err
	}
	d := &decoder{}
	i.config.checkRequired(d, i.verb)
	if i.verb != gc {
		i.rejectIPAM(d)
	}
	return d.err
}

// rejectIPAM rejects the configuration of an IPAM plugin.
func (r *request) rejectIPAM(d *decoder) {
	if r.ipam == nil {
		return
	}
	d.object(&location{key: "ipam"}, r.ipam, func(at *location, value []byte) {
		d.fail(at, CodeUnsupportedField, `%s is not supported: remove ipam, addresses come from "ranges"`, quoteShort(string(value)))
	})
}

func (i *invocation) add() ([]byte, error) {
	if err := i.validate(); err != nil {
		return nil, err
	}
	e, err := readEnvironment(i.env, i.verb)
	if err != nil {
		return nil, err
	}
	if i.prevResult != nil {
		return nil, configError(CodeUnsupportedField, "prevResult",
			quoteShort(string(i.prevResult))+" is not supported: tinylet-cni creates the interface, so it must be the first plugin of the list")
	}
	if i.config.Refuse != "" {
		return nil, &Error{Code: CodeInvalidConfig, Msg: "the network accepts no containers", Details: i.config.Refuse}
	}
	n, err := i.open(i.config)
	if err != nil {
		return nil, err
	}
	result, err := n.Setup(i.attachment(e))
	if err != nil {
		return nil, err
	}
	if err := result.validate(); err != nil {
		return nil, err
	}
	v, _ := parseVersion(i.config.CNIVersion)
	return encodeResult(v, &result), nil
}

// del ignores errors in the network configuration. The environment suffices to tear down
// an attachment, and one that cannot be torn down would remain forever.
func (i *invocation) del() error {
	e, err := readEnvironment(i.env, i.verb)
	if err != nil {
		return err
	}
	n, err := i.open(i.config)
	if err != nil {
		return err
	}
	return n.Teardown(i.attachment(e))
}

func (i *invocation) check() error {
	if err := i.validate(); err != nil {
		return err
	}
	e, err := readEnvironment(i.env, i.verb)
	if err != nil {
		return err
	}
	if i.prevResult == nil {
		return configError(CodeInvalidConfig, "prevResult", "is missing: pass the result of ADD")
	}
	prev, err := readResult(i.prevResult)
	if err != nil {
		return err
	}
	if i.config.DisableCheck {
		return nil
	}
	n, err := i.open(i.config)
	if err != nil {
		return err
	}
	return n.Check(i.attachment(e), prev)
}

// gc requires the list of valid attachments, even an empty one. Without it all attachments
// would be collected.
func (i *invocation) gc() error {
	if err := i.validate(); err != nil {
		return err
	}
	if !i.hasValid {
		return configError(CodeInvalidConfig, validKey, "is missing, so nothing was collected: write [] if no attachment is valid")
	}
	n, err := i.open(i.config)
	if err != nil {
		return err
	}
	return n.Collect(i.config.Name, i.valid)
}

func (i *invocation) status() error {
	if err := i.validate(); err != nil {
		return err
	}
	n, err := i.open(i.config)
	if err == nil {
		err = n.Status()
	}
	if err != nil {
		return &Error{Code: CodePluginNotAvailable, Msg: "the network is not ready", Err: err}
	}
	return nil
}

// attachment combines the network configuration and the environment. For addresses,
// runtimeConfig precedes args.cni, and args.cni precedes CNI_ARGS.
func (i *invocation) attachment(e *environment) Attachment {
	return Attachment{
		ID:        e.id,
		NetNS:     e.netns,
		Pod:       e.args.pod,
		Config:    i.config,
		Ports:     i.ports,
		Bandwidth: i.bandwidth,
		IPs:       firstNonEmpty(i.ips, i.argIPs, e.args.ips),
		MAC:       firstNonEmpty(i.mac, i.argMAC, e.args.mac),
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
