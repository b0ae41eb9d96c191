package partition

// OwnersOf returns the members of a group, sorted as they are in members, and those of n partitions
// that none of them owns.
func OwnersOf(group string, n int, members []Member) (owners []Member, free []int) {
	owned := map[int]bool{}
	for _, m := range members {
		if m.Group != group {
			continue
		}
		owners = append(owners, m)
		for _, p := range m.Owned {
			owned[p] = true
		}
	}
	for p := range n {
		if !owned[p] {
			free = append(free, p)
		}
	}
	return owners, free
}
