-- destroy deletes a group with its keys and, if it is ephemeral, the marks of its instances. keys are the stream, the
-- sorted set of delayed IDs, the sweep mark, the turn of the group, its pause, its members and its instances. It
-- returns 1, or 0 if there is no such group.
local function destroy(keys, group)
  local deleted = redis.call('XGROUP', 'DESTROY', keys[1], group)
  local all = {unpack(keys, 2)}
  if redis.call('EXISTS', keys[7]) == 1 then
    for _, name in ipairs(redis.call('ZRANGE', keys[7], 0, -1)) do
      all[#all + 1] = keys[2] .. ':instance:' .. name -- in the slot of the stream
    end
  end
  redis.call('UNLINK', unpack(all))
  return deleted
end
