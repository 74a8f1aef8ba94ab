package manifest

import (
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// scheduling checks the scheduling fields that a node evaluates.
func (c *checks) scheduling(spec *v1.PodSpec, path *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		at := path.Child("nodeSelector").Key(key)
		c.must(at, key, validation.IsQualifiedName)
		c.must(at, spec.NodeSelector[key], validation.IsValidLabelValue)
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		c.nodeSelector(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			path.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"))
	}
	for i := range spec.Tolerations {
		c.toleration(&spec.Tolerations[i], path.Child("tolerations").Index(i))
	}
	c.optional(path.Child("priorityClassName"), spec.PriorityClassName, validation.IsDNS1123Subdomain)
	oneOfOptional(c, path.Child("preemptionPolicy"), spec.PreemptionPolicy, v1.PreemptLowerPriority, v1.PreemptNever)
}

func (c *checks) nodeSelector(selector *v1.NodeSelector, path *field.Path) {
	at := path.Child("nodeSelectorTerms")
	if len(selector.NodeSelectorTerms) == 0 {
		c.add(field.Required(at, "must have at least one node selector term"))
	}
	for i := range selector.NodeSelectorTerms {
		term := &selector.NodeSelectorTerms[i]
		for j := range term.MatchExpressions {
			c.matchExpression(&term.MatchExpressions[j], at.Index(i).Child("matchExpressions").Index(j))
		}
		for j := range term.MatchFields {
			c.matchField(&term.MatchFields[j], at.Index(i).Child("matchFields").Index(j))
		}
	}
}

func (c *checks) matchExpression(r *v1.NodeSelectorRequirement, path *field.Path) {
	values := path.Child("values")
	switch r.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			c.add(field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
		c.forbid(len(r.Values) > 0, values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			c.add(field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		} else if _, err := strconv.ParseInt(r.Values[0], 10, 64); err != nil {
			c.add(field.Invalid(values.Index(0), r.Values[0], "must be an integer when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		c.add(field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	c.name(path.Child("key"), r.Key, validation.IsQualifiedName)
	for i, value := range r.Values {
		c.must(values.Index(i), value, validation.IsValidLabelValue)
	}
}

func (c *checks) matchField(r *v1.NodeSelectorRequirement, path *field.Path) {
	if r.Operator != v1.NodeSelectorOpIn && r.Operator != v1.NodeSelectorOpNotIn {
		c.add(field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	} else if len(r.Values) != 1 {
		c.add(field.Required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
	}
	if r.Key != "metadata.name" {
		c.add(field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
		return
	}
	for i, name := range r.Values {
		c.must(path.Child("values").Index(i), name, validation.IsDNS1123Subdomain)
	}
}

func (c *checks) toleration(t *v1.Toleration, path *field.Path) {
	if t.Key != "" {
		c.must(path.Child("key"), t.Key, validation.IsQualifiedName)
	} else if t.Operator != v1.TolerationOpExists {
		c.add(field.Invalid(path.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
	}
	c.invalid(t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute,
		path.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
	oneOf(c, path.Child("operator"), t.Operator, "", v1.TolerationOpEqual, v1.TolerationOpExists)
	if t.Operator == v1.TolerationOpExists && t.Value != "" {
		c.add(field.Invalid(path.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'"))
	} else {
		c.must(path.Child("value"), t.Value, validation.IsValidLabelValue)
	}
	oneOf(c, path.Child("effect"), t.Effect, "", v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
}
